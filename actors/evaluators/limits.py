"""What bounds the calls of a judge: a rate, a breaker and a budget. All are safe among threads."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

Clock = Callable[[], float]


class TokenBucket:
    """Lets `rate_per_s` calls through on average, and `burst` at once."""

    def __init__(
        self,
        rate_per_s: float,
        burst: int = 1,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._rate, self._burst = rate_per_s, burst
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._at = float(burst), clock()

    def take(self, timeout_s: float) -> bool:
        """Waits for a turn; False, and no turn is lost, if none comes within the time."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
            wait_s = max(0.0, (1 - self._tokens) / self._rate)
            if wait_s > timeout_s:
                return False
            self._tokens -= 1  # below 0 it is a place in the line
        if wait_s:
            self._sleep(wait_s)
        return True


class Breaker:
    """Stops the calls to a service that fails, and tries one again after a while.

    Nygard, "Release It!" (2007), chapter 5.
    """

    def __init__(self, failures: int = 5, cool_s: float = 30.0, clock: Clock = time.monotonic):
        """Makes a closed breaker.

        Args:
          failures: So many in a row open it ...
          cool_s: ... for so long.
          clock: Tells seconds.
        """
        self._limit, self._cool_s, self._clock = failures, cool_s, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._trying = False

    @property
    def open_s(self) -> float:
        """For how long nothing is asked; 0 if something may be."""
        return max(0.0, self._until - self._clock())

    def enter(self) -> bool:
        """Whether a call may be made; after a pause only one at a time until one succeeds."""
        with self._lock:
            if self._until == 0.0:
                return True
            if self._clock() < self._until or self._trying:
                return False
            self._trying = True
            return True

    def leave(self) -> None:
        """Takes an `enter` back: no call was made."""
        with self._lock:
            self._trying = False

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._until, self._trying = 0, 0.0, False

    def failed(self, pause_s: float | None = None) -> None:
        """Notes a failure; one that says for how long opens the breaker at once."""
        with self._lock:
            self._failures += 1
            self._trying = False
            if pause_s is not None or self._failures >= self._limit or self._until:
                self._until = self._clock() + (self._cool_s if pause_s is None else pause_s)


@dataclasses.dataclass
class Spent:
    """What judging took."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def since(self, before: Spent) -> Spent:
        return Spent(self.calls - before.calls, self.tokens - before.tokens, self.usd - before.usd)


@dataclasses.dataclass(frozen=True)
class Prices:
    """US dollars for a million tokens."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1e6


class Budget:
    """A hard stop: what was spent may pass a limit by what is being asked, never by a new call.

    Attributes:
      spent: So far.
    """

    def __init__(
        self,
        calls: int | None = None,
        tokens: int | None = None,
        usd: float | None = None,
    ):
        """None is no limit."""
        self._limits = {"calls": calls, "tokens": tokens, "usd": usd}
        self._lock = threading.Lock()
        self.spent = Spent()

    def enter(self) -> str:
        """Counts a call; if a limit is reached, counts none and returns the limit's name."""
        with self._lock:
            for name, limit in self._limits.items():
                if limit is not None and getattr(self.spent, name) >= limit:
                    return name
            self.spent.calls += 1
            return ""

    def add(self, tokens: int, usd: float) -> None:
        with self._lock:
            self.spent.tokens += tokens
            self.spent.usd += usd
