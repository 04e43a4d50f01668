"""Peers that send what nobody can have meant: they are counted, and in the end not listened to."""

from __future__ import annotations

import collections
import dataclasses

PARDONABLE = ("STALE", "WRONG_RUN", "BAD_VERSION")  # refused, but not for being malformed
PARK_AFTER = 32  # malformed messages; an actor with a bug is told of so many by name
PARK_S = 60.0
REMEMBERED = 4096  # peers; the one that was not heard for longest is forgotten


@dataclasses.dataclass
class _Record:
    malformed: int = 0  # since it was parked last
    until: float = 0.0  # of its parking


class Offenders:
    """Follows peers by name: the key of a client, or else its connection."""

    def __init__(self) -> None:
        self._records: collections.OrderedDict[str, _Record] = collections.OrderedDict()

    def is_parked(self, peer: str, now: float) -> bool:
        """Whether what this peer sends is to be thrown away unread."""
        record = self._records.get(peer)
        return record is not None and now < record.until

    def refused(self, peer: str, code: str, now: float) -> bool:
        """Counts a refusal of that code; returns whether the peer is parked now."""
        if code in PARDONABLE:
            return False
        record = self._records.setdefault(peer, _Record())
        self._records.move_to_end(peer)
        if len(self._records) > REMEMBERED:
            self._records.popitem(last=False)
        record.malformed += 1
        if record.malformed < PARK_AFTER:
            return False
        record.malformed, record.until = 0, now + PARK_S
        return True
