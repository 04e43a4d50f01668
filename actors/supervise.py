"""Decides what a phone's failure means: wait, recover, start anew, or give up."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Callable

from actors.device.causes import Cause
from actors.device.emulator import Phone
from actors.device.program import nothing
from common.errors import DeviceError

logger = logging.getLogger(__name__)

_HOUR_S = 3600.0
_WAIT_S = 0.1
# After these the phone is started anew at once; the others it may get over by itself.
_HARD = frozenset({Cause.EMULATOR, Cause.SNAPSHOT, Cause.DIALOG, Cause.NOT_READY, Cause.OFFLINE})


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much failing is put up with.

    Attributes:
      in_a_row: Failures without an episode in between that worked ...
      an_hour: ... and failures in an hour; one more ends the actor.
      backoff_s: Wait before the second recovery in a row; it doubles with each ...
      longest_backoff_s: ... up to this.
    """

    in_a_row: int = 5
    an_hour: int = 60
    backoff_s: float = 0.5
    longest_backoff_s: float = 30.0


class Supervisor:
    """Keeps one phone going.

    Attributes:
      failures: How many failures there were, by cause.
      down_s: How long the phone was not to be used, in all.
    """

    def __init__(
        self,
        phone: Phone,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """Makes a supervisor.

        Args:
          phone: What it looks after.
          budget: When it gives up.
          clock: Seconds.
          sleep: Waits for seconds.
        """
        self._phone = phone
        self._budget = budget or Budget()
        self._clock = clock
        self._sleep = sleep
        self._in_a_row = 0
        self._times: collections.deque[float] = collections.deque()
        self.failures: collections.Counter[str] = collections.Counter()
        self.down_s = 0.0

    def bring_up(self, on_wait: Callable[[], None] = nothing) -> None:
        """Makes the phone ready for the first time; as `failed` in all else."""
        began = self._clock()
        try:
            self._phone.recover(on_wait=on_wait)
        except DeviceError as error:
            self.failed(error, on_wait)
        else:
            self.down_s += self._clock() - began

    def failed(self, error: DeviceError, on_wait: Callable[[], None] = nothing) -> None:
        """Takes a failure in and makes the phone ready again.

        Args:
          error: The failure.
          on_wait: Called again and again while the phone is not to be used; what it raises ends
            the wait.

        Raises:
          DeviceError: The budget is spent.
        """
        began = self._clock()
        try:
            while True:
                self._count(error)
                self._back_off(on_wait)
                hard = error.cause in _HARD or self._in_a_row > 2
                try:
                    self._phone.recover(hard, on_wait)
                    return
                except DeviceError as another:
                    error = another
        finally:
            self.down_s += self._clock() - began

    def worked(self) -> None:
        """The phone got through an episode."""
        self._in_a_row = 0

    def metrics(self) -> dict[str, float]:
        """Numbers of this phone's health, as docs/failures.md explains them."""
        return {
            "device/failures": self.failures.total(),
            "device/failures_in_a_row": self._in_a_row,
            "device/starts": self._phone.starts,
            "device/down_s": round(self.down_s, 3),
            **{f"device/failures_{cause}": n for cause, n in sorted(self.failures.items())},
        }

    def _count(self, error: DeviceError) -> None:
        budget, now = self._budget, self._clock()
        self.failures[error.cause] += 1
        self._in_a_row += 1
        self._times.append(now)
        while now - self._times[0] > _HOUR_S:
            self._times.popleft()
        logger.warning(
            "Failure %d of %d in a row (%s). %s",
            self._in_a_row,
            budget.in_a_row,
            error.cause,
            error,
        )
        if self._in_a_row > budget.in_a_row:
            spent = f"{self._in_a_row} times in a row"
        elif len(self._times) > budget.an_hour:
            spent = f"{len(self._times)} times in an hour"
        else:
            return
        raise DeviceError(f"The phone failed {spent}, last with: {error}", error.cause) from error

    def _back_off(self, on_wait: Callable[[], None]) -> None:
        """Waits before every recovery in a row but the first."""
        if self._in_a_row < 2:
            return
        budget = self._budget
        wait_s = min(budget.backoff_s * 2 ** (self._in_a_row - 2), budget.longest_backoff_s)
        end = self._clock() + wait_s
        while self._clock() < end:
            on_wait()
            self._sleep(min(_WAIT_S, wait_s))
