"""What prioritised replay costs: python benchmarks/replay.py prints one JSON line.

A batch is sampled and its priorities are set anew, at 10,000 episodes; beside it stand a sum tree
in plain Python, uniform sampling, and the update that the batch is for (the tiny model's, A-RIDE).
"""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import json
import random
from collections.abc import Callable

import jax
import numpy as np

from benchmarks.model_parts.timing import medians, threads
from benchmarks.update import batch_of, episodes, updates_of
from common.models import autoui
from learner.replay import Replay

EPISODES, STEPS = 10_000, 256
ROUNDS = 30


class NaiveTree:
    """A sum tree of nodes in a list, one slot at a time."""

    def __init__(self, capacity: int):
        self.leaves = 1 << (capacity - 1).bit_length()
        self.nodes = [0.0] * (2 * self.leaves)

    def set(self, slot: int, weight: float) -> None:
        node = self.leaves + slot
        self.nodes[node] = weight
        while node > 1:
            node //= 2
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def sample(self, count: int) -> list[int]:
        return [self._find(random.random() * self.nodes[1]) for _ in range(count)]

    def _find(self, mass: float) -> int:
        node = 1
        while node < self.leaves:
            node *= 2
            if mass >= self.nodes[node]:
                mass -= self.nodes[node]
                node += 1
        return node - self.leaves


def main() -> None:
    model = autoui.PRESETS["tiny"]
    some = episodes(model, 64)
    replay = Replay(EPISODES, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for i in range(EPISODES):
        replay.insert(some[i % len(some)], weight=float(rng.random()) + 0.1, fresh=False)
    naive = NaiveTree(EPISODES)
    for slot in range(EPISODES):
        naive.set(slot, random.random() + 0.1)
    updates = updates_of(model)
    state = [updates.init(jax.random.key(0))]
    batch = batch_of(model, STEPS)

    def prioritised() -> None:
        for entry in replay.sample(STEPS):
            replay.update(entry.handle, random.random(), entry.targets)

    def plain_python() -> None:
        draws = STEPS // 2
        for slot in naive.sample(draws)[: STEPS // 8]:
            naive.set(slot, random.random())

    def uniform() -> None:
        replay.sample_uniform(STEPS // 8)

    def update() -> None:
        state[0], report = updates.improve(state[0], batch)
        jax.block_until_ready((state[0].params, report))

    ways: dict[str, Callable[[], None]] = {
        "prioritised": prioritised, "naive": plain_python, "uniform": uniform, "update": update,
    }  # fmt: skip
    seconds = medians(ways, ROUNDS)
    print(
        json.dumps(
            {
                "name": "replay",
                "episodes": EPISODES,
                "share_of_update": round(seconds["prioritised"] / seconds["update"], 4),
                "over_naive": round(seconds["prioritised"] / seconds["naive"], 2),
                "over_uniform": round(seconds["prioritised"] / seconds["uniform"], 2),
                **{f"{way}_ms": round(1000 * taken, 3) for way, taken in seconds.items()},
                "threads": threads(),
            }
        )
    )


if __name__ == "__main__":
    main()
