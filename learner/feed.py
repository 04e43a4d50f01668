"""The learner's end of the journal: episodes in the order in which they were acknowledged."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import NamedTuple, Self

from common import errors, messages, record
from common.codec import EpisodeSpec, decode_episode
from common.types import Episode
from learner.journal import Reader

MOST_AT_ONCE = 256  # episodes that are taken together, so that a backlog does not fill the memory


class Arrival(NamedTuple):
    """An episode and the number of its record in the journal."""

    position: int
    episode: Episode


class Feed:
    """Reads episodes from the journal, through the same checks as from the wire."""

    def __init__(self, folder: pathlib.Path, spec: EpisodeSpec, position: int = 0):
        """Begins with the record of that number."""
        self._folder, self._spec = folder, spec
        self._reader = Reader(folder, position)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()

    @property
    def position(self) -> int:
        """The number of the record that comes next."""
        return self._reader.position

    def take(self, end: int) -> list[Arrival]:
        """Returns the next episodes of those before `end`, the number of committed records.

        Raises:
          ConfigError: The journal is damaged, or of a run with other settings.
        """
        arrivals: list[Arrival] = []
        while self.position < end and len(arrivals) < MOST_AT_ONCE:
            found = self._reader.read()
            if found is None:
                break
            arrivals.append(Arrival(found.number, self._decode(found)))
        return arrivals

    def recall(self, positions: Iterable[int]) -> dict[int, Episode]:
        """Returns the episodes of these records, without those that are gone.

        Raises:
          ConfigError: As `take`.
        """
        wanted = set(positions)
        episodes: dict[int, Episode] = {}
        if wanted:
            with Reader(self._folder, min(wanted)) as reader:
                while len(episodes) < len(wanted) and (found := reader.read()) is not None:
                    if found.number in wanted:
                        episodes[found.number] = self._decode(found)
                    if found.number >= max(wanted):
                        break
        return episodes

    def _decode(self, found: record.Record) -> Episode:
        try:
            return decode_episode(*messages.unpack(found.frames), self._spec)
        except errors.WireError as error:
            raise errors.ConfigError(
                f"{self._folder} holds episodes that do not fit this run ({error}). "
                "Give another --workdir, or the settings of that run."
            ) from error
