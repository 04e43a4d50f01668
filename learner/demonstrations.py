"""Steps of the expert for the supervised start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from common.types import Episode


class Steps(NamedTuple):
    """Single steps to imitate, out of their episodes."""

    prompt_ids: np.ndarray  # [N, S] int32
    features: np.ndarray  # [N, I, C] uint8
    action_ids: np.ndarray  # [N, A] int32


class Demonstrations:
    """All steps of the successful demonstrations so far, each alike in a sample."""

    def __init__(self) -> None:
        self._episodes: list[Episode] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._episodes)

    def insert(self, episode: Episode) -> None:
        self._episodes.append(episode)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(episode))

    def sample(self, size: int, rng: np.random.Generator) -> Steps:
        """Draws `size` steps with replacement."""
        rows = rng.integers(0, self._ends[-1], size)
        picks = []
        for row, number in zip(rows, np.searchsorted(self._ends, rows, side="right"), strict=True):
            path = self._episodes[number].trajectory
            t = row - self._ends[number]  # negative: counted from the episode's end
            picks.append((path.prompt_ids[t], path.features[t], path.action_ids[t]))
        return Steps(*(np.stack(column) for column in zip(*picks, strict=True)))
