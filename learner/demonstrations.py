"""Steps of the expert for the supervised start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from common.types import Episode
from learner.packing import touched_token
from learner.sum_tree import SumTree


class Steps(NamedTuple):
    """Single steps to imitate, out of their episodes."""

    prompt_ids: np.ndarray  # [N, S] int32
    features: np.ndarray  # [N, I, C] uint8 or float32
    action_ids: np.ndarray  # [N, A] int32
    touched: np.ndarray  # [N] int32, the image token that the action taps; -1: none


LEAST, MOST = 0.02, 3.0  # nats; what is known is seen now and then, and an outlier not all the time


class Demonstrations:
    """All steps of the successful demonstrations, sampled in proportion to their last loss.

    Half of the steps are the same few taps, known after a minute; typed text and the icons of the
    home screen take longer, and by their loss they come more often.
    """

    def __init__(self, capacity: int, grid: tuple[int, int] | None = None):
        """Makes room for `capacity` steps; more are an IndexError.

        Args:
          capacity: In steps.
          grid: Rows and columns of the image's tokens, where those are patches of the screen.
        """
        self._grid = grid
        self._episodes: list[Episode] = []
        self._ends: list[int] = []
        self._tree = SumTree(capacity)

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)

    def insert(self, episode: Episode) -> None:
        start = self._ends[-1] if self._ends else 0
        self._episodes.append(episode)
        self._ends.append(start + len(episode))
        for row in range(start, self._ends[-1]):
            self._tree.set(row, MOST)

    def sample(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, Steps]:
        """Draws `size` steps; returns their rows, for `update`, and the steps."""
        rows = self._tree.sample(size, rng)
        picks = []
        for row, number in zip(rows, np.searchsorted(self._ends, rows, side="right"), strict=True):
            path = self._episodes[number].trajectory
            t = row - self._ends[number]  # negative: counted from the episode's end
            touched = touched_token(self._episodes[number].actions[t], self._grid)
            picks.append((path.prompt_ids[t], path.features[t], path.action_ids[t], touched))
        return rows, Steps(*(np.array(column) for column in zip(*picks, strict=True)))

    def update(self, rows: np.ndarray, losses: np.ndarray) -> None:
        """Remembers the negative log-probability, in nats, of the sampled steps' actions."""
        for row, loss in zip(rows, np.clip(losses, LEAST, MOST), strict=True):
            self._tree.set(int(row), float(loss))
