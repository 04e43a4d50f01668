"""A sum tree over slots, in float64."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Non-negative weights of `capacity` slots with their sum, sampled in O(log capacity).

    Parents are recomputed from their children on every change. Adding differences instead drifts:
    after the leaves of a float32 tree were zeroed, its root read 0.68.
    """

    def __init__(self, capacity: int):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self._leaves = 1 << (capacity - 1).bit_length()  # a power of two keeps the leaves in order
        self._nodes = np.zeros(2 * self._leaves, np.float64)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    def __getitem__(self, slot: int) -> float:
        return float(self._nodes[self._leaves + slot])

    def set(self, slot: int, weight: float) -> None:
        """Sets one weight; a negative or non-finite one is an error here, not at a later sample."""
        if not 0 <= slot < self.capacity:
            raise IndexError(f"slot {slot} is outside 0..{self.capacity - 1}")
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight of slot {slot} must be finite and not negative, not {weight}")
        node = self._leaves + slot
        self._nodes[node] = weight
        while node > 1:
            node //= 2
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draws slots in proportion to their weights, one from each of `count` equal strata.

        Returns:
          Slots, [count] int64; none with weight 0.
        """
        if not self.total > 0:
            raise ValueError("nothing to sample: every weight is 0")
        mass = (np.arange(count) + rng.random(count)) * (self.total / count)
        nodes = np.ones(count, np.int64)
        while nodes[0] < self._leaves:
            left = self._nodes[2 * nodes]
            # Rounding may leave mass beyond the last positive leaf: never enter an empty subtree.
            right = (mass >= left) & (self._nodes[2 * nodes + 1] > 0)
            mass = np.where(right, mass - left, mass)
            nodes = 2 * nodes + right
        return nodes - self._leaves

    def top(self, share: float) -> np.ndarray:
        """Returns the slots of the largest weights, that share of the positive ones; at least one.

        Ties at the edge all count, so that equal weights are never told apart. O(capacity).
        """
        weights = self._nodes[self._leaves : self._leaves + self.capacity]
        positive = weights[weights > 0]
        if not len(positive):
            raise ValueError("nothing to sample: every weight is 0")
        count = max(1, int(np.ceil(share * len(positive))))
        edge = np.partition(positive, len(positive) - count)[len(positive) - count]
        return np.flatnonzero(weights >= edge)
