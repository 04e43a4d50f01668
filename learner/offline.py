"""Recorded episodes at the start of a run: which are demonstrations, and which go to replay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from common.types import Episode
from learner.demonstrations import Demonstrations

logger = logging.getLogger(__name__)


def share_out(
    episodes: Iterable[Episode],
    demonstrations: Demonstrations,
    wanted: int,
    replay: Callable[[Episode], object],
    longest: int,
) -> None:
    """Gives successes to the warm start until it has enough, and the rest to replay.

    A failed expert is left out: it is not recorded what it would have needed to do.

    Args:
      episodes: What was recorded.
      demonstrations: Takes successes, whoever acted ...
      wanted: ... until it has so many.
      replay: Takes an episode; older ones make room in the end.
      longest: Episodes of more steps are left out.
    """
    replayed = too_long = failed = 0
    for episode in episodes:
        if len(episode) > longest:
            too_long += 1
        elif episode.success and len(demonstrations) < wanted:
            demonstrations.insert(episode)
        elif episode.success or episode.source != "expert":
            replay(episode)
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
