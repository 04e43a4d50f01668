"""The way out of the spool: what is sent, what is sent again, and what an answer ends."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Callable

from actors.spool import Spool
from common import messages

logger = logging.getLogger(__name__)

RESEND_S = 5.0  # without an answer; answers take milliseconds
UNCONNECTED_RETRY_S = 0.05


@dataclasses.dataclass
class _Outgoing:
    """An episode that is under way."""

    number: int  # in the spool
    frames: list[bytes]
    send_at: float = 0.0  # monotonic clock

    @property
    def size(self) -> int:
        return sum(map(len, self.frames))


class Outbox:
    """Keeps as much of a spool under way as the learner gave credit for, oldest first.

    Counters: acked, retried, refused and refused/CODE, damaged.
    """

    def __init__(self, spool: Spool, counters: collections.Counter[str]):
        self.spool = spool
        self._counters = counters
        self._under_way: dict[tuple[str, int], _Outgoing] = {}  # by boot and seq
        self._loaded: set[int] = set()  # their numbers
        self._credit_episodes = self._credit_bytes = 1

    def grant(self, episodes: int, size_bytes: int) -> None:
        """Sets the credit; one episode of any size is always allowed."""
        self._credit_episodes, self._credit_bytes = episodes, size_bytes

    def send_due(self, send: Callable[[list[bytes]], bool]) -> None:
        """Sends what is new or was not answered in time; `send` says if the connection took it."""
        self._fill()
        now = time.monotonic()
        for outgoing in self._under_way.values():
            if now >= outgoing.send_at:
                sent = send(outgoing.frames)
                outgoing.send_at = now + (RESEND_S if sent else UNCONNECTED_RETRY_S)

    def send_again(self) -> None:
        """The connection is another one: nothing sent before will be answered."""
        for outgoing in self._under_way.values():
            outgoing.send_at = 0.0

    def acknowledge(self, boot: str, seq: int) -> None:
        """The learner has it on its disk."""
        if (outgoing := self._under_way.pop((boot, seq), None)) is not None:
            self._loaded.remove(outgoing.number)
            self.spool.remove(outgoing.number)
            self._counters["acked"] += 1

    def postpone(self, boot: str, seq: int, delay_s: float) -> None:
        """The learner has no room for it now."""
        if (boot, seq) in self._under_way:
            self._under_way[boot, seq].send_at = time.monotonic() + delay_s
            self._counters["retried"] += 1

    def refuse(self, boot: str, seq: int, code: str, reason: str) -> bool:
        """The learner will never take it; False if it is not under way."""
        if (outgoing := self._under_way.pop((boot, seq), None)) is None:
            return False
        self._loaded.remove(outgoing.number)
        self.spool.bury(outgoing.number, f"{code}: {reason}")
        self._counters["refused"] += 1
        self._counters[f"refused/{code}"] += 1
        logger.error("The learner refused episode %d for good. %s: %s", seq, code, reason)
        return True

    def _fill(self) -> None:
        """Loads what the credit allows."""
        if len(self._under_way) >= min(self._credit_episodes, len(self.spool)):
            return
        size = sum(outgoing.size for outgoing in self._under_way.values())
        for number in self.spool.numbers:
            if number in self._loaded:
                continue
            size += self.spool.size_of(number)
            is_over = len(self._under_way) >= self._credit_episodes or size > self._credit_bytes
            if self._under_way and is_over:
                return
            frames = self.spool.load(number)
            if frames is None:
                self._counters["damaged"] += 1
                continue
            header, _ = messages.unpack(frames)
            self._under_way[header.text("boot"), header.integer("seq")] = _Outgoing(number, frames)
            self._loaded.add(number)
