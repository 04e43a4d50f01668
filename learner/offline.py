"""Recorded episodes at the start of a run: which are demonstrations, and which go to replay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from common.types import Episode
from learner.dataset import Dataset
from learner.demonstrations import Demonstrations
from learner.feed import Feed

logger = logging.getLogger(__name__)


def numbered(recorded: Dataset) -> Iterator[tuple[int, Episode]]:
    """Yields recorded episodes with their positions, which are below those of any journal."""
    for number, found in enumerate(recorded):
        yield -1 - number, found.episode


def recall(feed: Feed, recorded: Dataset | None, positions: Iterable[int]) -> dict[int, Episode]:
    """Returns the episodes at these positions, of the journal and of those recorded before."""
    wanted = set(positions)
    episodes = feed.recall(position for position in wanted if position >= 0)
    if recorded is not None and any(position < 0 for position in wanted):
        episodes |= {at: episode for at, episode in numbered(recorded) if at in wanted}
    return episodes


def share_out(
    episodes: Iterable[tuple[int, Episode]],
    demonstrations: Demonstrations,
    wanted: int,
    replay: Callable[[Episode, int], object],
    longest: int,
) -> None:
    """Gives successes to the warm start until it has enough, and the rest to replay.

    A failed expert is left out: it is not recorded what it would have needed to do.

    Args:
      episodes: What was recorded, with positions.
      demonstrations: Takes successes, whoever acted ...
      wanted: ... until it has so many.
      replay: Takes an episode; older ones make room in the end.
      longest: Episodes of more steps are left out.
    """
    replayed = too_long = failed = 0
    for position, episode in episodes:
        if len(episode) > longest:
            too_long += 1
        elif episode.success and len(demonstrations) < wanted:
            demonstrations.insert(episode, position)
        elif episode.success or episode.source != "expert":
            replay(episode, position)
            replayed += 1
        else:
            failed += 1
    logger.info(
        "Of the recorded episodes %d are demonstrations and %d went to replay; %d of over %d steps "
        "and %d failures of an expert are left out.",
        len(demonstrations),
        replayed,
        too_long,
        longest,
        failed,
    )
