"""What the learner keeps of the episodes, and how a later life of it gets that back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from common.types import Ending, Episode
from learner.config import LearnerConfig
from learner.curriculum import Curriculum
from learner.demonstrations import Demonstrations
from learner.monitor import Monitor
from learner.offline import share_out
from learner.priorities import EpisodeTerms, RunningMeans, priority
from learner.replay import Entry, Replay
from learner.state import StepReport

logger = logging.getLogger(__name__)


class Memory:
    """Demonstrations, replay, and the newest episodes for what is measured.

    A checkpoint has all of it but the episodes: those are in the journal, and it names them by the
    numbers of their records, which are their positions here. Those of recorded ones are below 0.
    """

    def __init__(
        self,
        config: LearnerConfig,
        image_grid: tuple[int, int] | None,
        rng: np.random.Generator,
        curriculum: Curriculum,
    ):
        unexpected = priority(EpisodeTerms(0.0, 0.0, 0.0), 1.0, 0.0, config.priority)
        self.replay = Replay(config.reinforce.replay_episodes, rng, largest=max(1.0, unexpected))
        self._priority = config.priority
        self._offline_updates = config.offline.updates
        self._wanted = config.warm_start.demonstrations
        self._horizon, self._image_grid = max(config.horizon.values()), image_grid
        self.demonstrations = self._no_demonstrations()
        self.monitor = Monitor()
        self.curriculum = curriculum
        self.means = RunningMeans()

    def see(self, episode: Episode, position: int) -> None:
        """Measures an episode that has arrived."""
        self.monitor.add(episode, position)
        if episode.source == "policy" and episode.ending is not Ending.TRUNCATED:
            self.curriculum.see_outcome(episode.task_id, episode.success)

    def insert(self, episode: Episode, position: int, fresh: bool = True) -> None:
        """Adds an episode to replay; one that is filtered out is kept from samples."""
        filtered = self._priority.successes_only and not episode.success
        self.replay.insert(episode, 0.0 if filtered else None, fresh, position)

    def take_recorded(self, episodes: Iterable[tuple[int, Episode]]) -> None:
        """Shares recorded episodes out to the warm start and the replay; comes first.

        Args:
          episodes: With their positions, which are below 0.
        """
        share_out(episodes, self.demonstrations, self._wanted, self.insert_old, self._horizon)
        if not self._offline_updates:
            self.replay.inserted_steps = 0  # the bound on uses is by what is new

    def insert_old(self, episode: Episode, position: int) -> None:
        """Adds an episode to replay that waits for its turn by priority."""
        self.insert(episode, position, fresh=False)

    def refresh(self, entries: Sequence[Entry], report: StepReport) -> None:
        """Gives the replay new priorities and value targets, of a step that looked at entries."""
        start = 0
        for entry in entries:
            rows = slice(start, start + len(entry.episode))
            start = rows.stop
            terms = EpisodeTerms(
                float(np.abs(report.td[rows]).mean()),
                float(report.rho[rows].mean()),
                float(report.entropy[rows].mean()),
            )
            self.means.update(terms)
            outcome = float(entry.episode.success)
            expected = float(report.instruction_value[rows.start])
            self.curriculum.see_value(entry.episode.task_id, expected)
            weight = priority(self.means.normalise(terms), outcome, expected, self._priority)
            self.replay.update(entry.handle, weight, np.asarray(report.targets[rows]))

    def end_demonstrations(self) -> None:
        """Moves them to replay, where they stay until newer episodes take their place."""
        old = self.demonstrations
        for episode, position in zip(old, old.positions, strict=True):
            self.replay.insert(episode, fresh=False, position=position)
        self.demonstrations = self._no_demonstrations()

    def live(self) -> np.ndarray:
        """Returns the positions of all episodes that are kept, ascending."""
        positions = [*self.replay.positions, *self.demonstrations.positions]
        return np.unique([*positions, *self.monitor.positions]).astype(np.int64)

    def save(self) -> dict[str, np.ndarray]:
        """Returns what `restore` takes; no array is an object's."""
        parts = {
            "replay": self.replay.save(),
            "demonstrations": self.demonstrations.save(),
            "monitor": {"positions": np.array(self.monitor.positions, np.int64)},
            "means": {"values": self.means.save()},
        }
        return {f"{part}/{name}": array for part, of in parts.items() for name, array in of.items()}

    def restore(
        self,
        saved: Mapping[str, np.ndarray],
        recall: Callable[[Iterable[int]], dict[int, Episode]],
    ) -> None:
        """Fills an empty memory.

        Args:
          saved: What `save` returned.
          recall: Returns the episodes of positions, without those that are lost.
        """
        wanted = {
            position
            for part in ("replay", "demonstrations", "monitor")
            for position in saved[f"{part}/positions"].tolist()
        }
        episodes = recall(wanted)
        if lost := len(wanted) - len(episodes):
            logger.error("%d episodes that were in replay are not in the journal any more.", lost)
        self.replay.restore(_part(saved, "replay"), episodes)
        self.demonstrations.restore(_part(saved, "demonstrations"), episodes)
        for position in saved["monitor/positions"].tolist():
            if position in episodes:
                self.monitor.remember(episodes[position], position)
        self.means.restore(saved["means/values"])

    def _no_demonstrations(self) -> Demonstrations:
        return Demonstrations(max(self._wanted, 1) * self._horizon, self._image_grid)


def _part(saved: Mapping[str, np.ndarray], part: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(f"{part}/"): array
        for name, array in saved.items()
        if name.startswith(f"{part}/")
    }
