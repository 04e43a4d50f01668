"""Which episodes have been delivered: what makes at least once on the wire exactly once."""

from __future__ import annotations

import collections
import json
from typing import NamedTuple

from common import messages

MAX_BOOTS = 16384  # starts of actors that are remembered; the longest silent one goes first
MAX_AHEAD = (
    1024  # remembered numbers of a boot behind a gap, many times what an actor has under way
)


class EpisodeId(NamedTuple):
    """Names an episode for good."""

    actor: str
    boot: str  # one start of the actor
    seq: int  # without gaps within a boot

    @classmethod
    def of(cls, header: messages.Header) -> EpisodeId:
        """Returns the id of an EPISODE message; raises WireError if it has none."""
        return cls(header.text("actor", 256), header.text("boot", 256), header.integer("seq"))


class Seen:
    """The episode numbers of one boot that have been delivered.

    Numbers have no gaps, so they are all those up to one, and a few above it.
    """

    def __init__(self, below: int = 0, ahead: tuple[int, ...] = ()) -> None:
        self.below = below  # all numbers below have been seen
        self.ahead = set(ahead)

    def __contains__(self, seq: int) -> bool:
        return seq < self.below or seq in self.ahead

    def add(self, seq: int) -> None:
        self.ahead.add(seq)
        if len(self.ahead) > MAX_AHEAD:  # below them is one that was refused for good
            self.below = min(self.ahead)
        while self.below in self.ahead:
            self.ahead.remove(self.below)
            self.below += 1


class Ledger:
    """The ids of all episodes that have ever been delivered, in a few bytes a boot."""

    def __init__(self) -> None:
        self._boots: collections.OrderedDict[tuple[str, str], Seen] = collections.OrderedDict()

    def __contains__(self, episode: EpisodeId) -> bool:
        seen = self._boots.get(episode[:2])
        return seen is not None and episode.seq in seen

    def add(self, episode: EpisodeId) -> None:
        seen = self._boots.setdefault(episode[:2], Seen())
        self._boots.move_to_end(episode[:2])
        seen.add(episode.seq)
        if len(self._boots) > MAX_BOOTS:
            self._boots.popitem(last=False)

    def to_bytes(self) -> bytes:
        rows = [
            [actor, boot, seen.below, sorted(seen.ahead)]
            for (actor, boot), seen in self._boots.items()
        ]
        return json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Ledger:
        ledger = cls()
        for actor, boot, below, ahead in json.loads(data):
            ledger._boots[actor, boot] = Seen(below, tuple(ahead))
        return ledger
