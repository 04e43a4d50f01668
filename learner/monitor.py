"""What is known of the newest episodes: success, rates, lag."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from common.types import Ending, Episode

REMEMBERED = 160  # policy episodes: some of every family
NEWEST = 64  # arrivals for the rate, and of those episodes for what else is shown


class Monitor:
    """Remembers the newest episodes and sums them up."""

    def __init__(self) -> None:
        self._recent: collections.deque[Episode] = collections.deque(maxlen=REMEMBERED)
        # Of their records in the journal.
        self.positions: collections.deque[int] = collections.deque(maxlen=REMEMBERED)
        self._arrivals: collections.deque[float] = collections.deque(maxlen=NEWEST)

    def add(self, episode: Episode, position: int = 0) -> None:
        """Takes an episode in; the success is that of the policy where the phone did not fail."""
        self._arrivals.append(time.monotonic())
        if episode.source == "policy" and episode.ending is not Ending.TRUNCATED:
            self.remember(episode, position)

    def remember(self, episode: Episode, position: int) -> None:
        """Takes up an episode that arrived in an earlier life of the learner."""
        self._recent.append(episode)
        self.positions.append(position)

    def weaker_success(self, window: int) -> float | None:
        """Mean success of the weaker half of the task families, over the newest `window` episodes.

        The mean over all tells too little: half of the families can be known by heart while the
        others are at zero, and what is at zero has no successes to learn from. None while there
        are fewer episodes.
        """
        newest = list(self._recent)[-window:]
        if len(newest) < window:
            return None
        families = sorted(_by_family(newest).values())
        return float(np.mean(families[: (len(families) + 1) // 2]))

    def status(self, version: int) -> dict[str, Any]:
        """Numbers for a dashboard, given the newest published version.

        Success is the mean over the families: the actors play more of what fails, and the mean over
        episodes would sink while the policy gets better.
        """
        acted = [int(episode.trajectory.version[-1]) for episode in list(self._recent)[-16:]]
        families = _by_family(self._recent)
        return {
            "success": float(np.mean(list(families.values()))) if families else 0.0,
            "measured": len(self._recent),
            "episodes_per_s": self._rate(),
            "lag_versions": version - float(np.mean(acted)) if acted else 0.0,
        }

    def metrics(self, version: int) -> dict[str, float]:
        """The same and more under the names of docs/metrics.md."""
        newest = list(self._recent)[-NEWEST:]
        steps = sum(len(episode) for episode in newest)
        invalid = sum(int(episode.trajectory.invalid.sum()) for episode in newest)
        status = self.status(version)
        families = _by_family(self._recent)
        return {
            "actors/success": status["success"],
            "actors/episodes_per_s": status["episodes_per_s"],
            "actors/lag_versions": status["lag_versions"],
            "actors/steps_mean": steps / max(len(newest), 1),
            "actors/invalid_share": invalid / max(steps, 1),
            **{f"success/{family}": families[family] for family in sorted(families)},
        }

    def _rate(self) -> float:
        """Arrivals a second since the oldest that is remembered."""
        if len(self._arrivals) < 2:
            return 0.0
        return (len(self._arrivals) - 1) / max(time.monotonic() - self._arrivals[0], 1e-6)


def _by_family(episodes: Iterable[Episode]) -> dict[str, float]:
    """Returns the success of each task family."""
    families: dict[str, list[bool]] = {}
    for episode in episodes:
        families.setdefault(episode.family, []).append(episode.success)
    return {family: float(np.mean(successes)) for family, successes in families.items()}
