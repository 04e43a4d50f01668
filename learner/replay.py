"""Replay of whole episodes, sampled by priority."""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np

from common.types import Episode
from learner.sum_tree import SumTree


class Handle(NamedTuple):
    """Names an episode in a slot; the generation tells it from a later one in the same slot."""

    slot: int
    generation: int


class Entry(NamedTuple):
    """An episode in replay with what the learner keeps about it."""

    handle: Handle
    episode: Episode
    targets: np.ndarray  # [T] float32, off-policy corrected value target, at first the outcome
    ages: bool = True  # its versions are this run's, so that it can expire


class Replay:
    """A ring of episodes; the oldest is evicted first.

    Every new episode is handed out once by the next samples, whatever its priority, and enters at
    the largest weight so far; from then on priorities decide.
    """

    def __init__(self, capacity: int, rng: np.random.Generator, largest: float = 1.0):
        """`largest` is the weight of what is inserted before any weight was measured."""
        self._entries: list[Entry | None] = [None] * capacity
        self._tree = SumTree(capacity)
        self._rng = rng
        self._next = 0
        self._largest = largest
        self._fresh: collections.deque[Handle] = collections.deque(maxlen=capacity)
        self.inserted_steps = 0
        self.sampled_steps = 0
        self.late_updates = 0  # of episodes that had been evicted
        self.expired = 0  # kept from samples for their age
        self._expired = self._swept = 0  # how far these went, in insertions and in slots

    def __len__(self) -> int:
        return min(self._next, len(self._entries))

    def insert(self, episode: Episode, weight: float | None = None, fresh: bool = True) -> Handle:
        """Adds an episode at `weight`, by default the largest so far; 0 keeps it from samples.

        One that is not `fresh`, a demonstration or recorded, waits for its turn by priority and
        does not expire.
        """
        slot = self._next % len(self._entries)
        handle = Handle(slot, self._next // len(self._entries))
        outcome = np.full(len(episode), float(episode.success), np.float32)
        ages = fresh and episode.source == "policy"
        self._entries[slot] = Entry(handle, episode, outcome, ages)
        weight = self._largest if weight is None else weight
        self._tree.set(slot, weight)
        if weight > 0 and fresh:
            self._fresh.append(handle)
        self._next += 1
        self.inserted_steps += len(episode)
        return handle

    def update(self, handle: Handle, weight: float, targets: np.ndarray) -> None:
        """Sets an episode's weight and value targets; one evicted meanwhile is counted, not set."""
        entry = self._entries[handle.slot]
        if entry is None or entry.handle != handle:
            self.late_updates += 1
            return
        if self._tree[handle.slot] == 0:
            weight = 0.0  # it was filtered out, or has expired since it was sampled
        self._tree.set(handle.slot, weight)
        self._largest = max(self._largest, weight)
        self._entries[handle.slot] = entry._replace(targets=targets)

    def weight(self, handle: Handle) -> float:
        return self._tree[handle.slot]

    def expire(self, oldest: int) -> None:
        """Keeps the policy's episodes that older versions than this one acted from samples.

        They come in order, so each is looked at once.
        """
        while self._expired < self._next:
            entry = self._entries[self._expired % len(self._entries)]
            present = self._next - self._expired <= len(self._entries)
            if present and entry and entry.ages:
                if int(entry.episode.trajectory.version[-1]) >= oldest:
                    return
                if self._tree[entry.handle.slot] > 0:
                    self._tree.set(entry.handle.slot, 0.0)
                    self.expired += 1
            self._expired += 1

    def sweep(self, steps: int) -> list[Entry]:
        """Returns the next entries in the ring's order, up to `steps` steps, to look at them anew.

        Only those that can be sampled; fewer where the ring has been gone round.
        """
        chosen: list[Entry] = []
        for _ in range(len(self)):
            entry = self._entries[self._swept % len(self)]
            if entry and self._tree[entry.handle.slot] > 0:
                if len(entry.episode) > steps:
                    break
                chosen.append(entry)
                steps -= len(entry.episode)
            self._swept += 1
        return chosen

    def sample(self, steps: int, top_share: float = 1.0) -> list[Entry]:
        """Draws different episodes by priority until the next one would pass `steps` steps.

        Args:
          steps: The most steps.
          top_share: Below 1 the draw is uniform among this share of the largest weights.

        Returns:
          At least one entry where the first fits; empty when nothing has a positive weight.
        """
        chosen: dict[int, Entry] = {}
        room = steps
        while self._fresh:
            handle = self._fresh[0]
            entry = self._entries[handle.slot]
            if entry is not None and entry.handle == handle and self._tree[handle.slot] > 0:
                if len(entry.episode) > room:
                    break
                chosen[handle.slot] = entry
                room -= len(entry.episode)
            self._fresh.popleft()
        if self._tree.total > 0:
            draws = max(steps // 2, 1)
            if top_share < 1:
                slots = self._rng.choice(self._tree.top(top_share), draws)
            else:
                slots = self._tree.sample(draws, self._rng)
            for slot in self._rng.permutation(slots):
                entry = self._entries[slot]
                assert entry is not None, f"slot {slot} has a weight and no episode"
                if slot in chosen:
                    continue
                if len(entry.episode) > room:
                    break
                chosen[int(slot)] = entry
                room -= len(entry.episode)
        self.sampled_steps += steps - room
        return list(chosen.values())

    def sample_uniform(self, count: int) -> list[Entry]:
        """Draws up to `count` different episodes of no expert, each alike; for the critic."""
        slots = self._rng.choice(len(self), min(count, len(self)), replace=False)
        entries = (self._entries[slot] for slot in slots)
        return [entry for entry in entries if entry and entry.episode.source != "expert"]
