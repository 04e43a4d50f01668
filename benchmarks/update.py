"""The learner's gradient step by part: python benchmarks/update.py prints one JSON line a model.

`over_supervised` is the time of A-RIDE's step of the policy over that of a bare supervised step
(maximum likelihood and Adam) on the same rows.
"""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import json
from collections.abc import Callable

import jax
import numpy as np

from benchmarks.model_parts.timing import medians, threads
from common.models import autoui
from common.models.distribution import SamplingConfig
from common.types import Ending, Episode, Trajectory
from learner import sharding
from learner.demonstrations import Steps
from learner.packing import Batch, pack
from learner.priorities import EpisodeTerms, PriorityConfig, RunningMeans, priority
from learner.replay import Replay
from learner.update import UpdateConfig, Updates, make_updates

LENGTH = 8  # steps an episode
CASES = {"tiny": 256, "small": 16}  # steps a batch
ROUNDS = 7


def episodes(model: autoui.AutoUIConfig, count: int) -> list[Episode]:
    """Makes episodes of random contents with the model's shapes, every other a success."""
    rng = np.random.default_rng(0)
    shape = (LENGTH, model.image_tokens, model.image_dim)
    made = []
    for seq in range(count):
        success = seq % 2 == 0
        actions = rng.integers(2, model.vocab_size, (LENGTH, model.action_length)).astype(np.int32)
        ones = np.ones(LENGTH, np.float32)
        ends = np.arange(LENGTH) == LENGTH - 1
        path = Trajectory(
            prompt_ids=rng.integers(2, model.vocab_size, (LENGTH, model.prompt_length)).astype(
                np.int32
            ),
            features=rng.integers(0, 256, shape).astype(model.features_dtype),
            action_ids=actions,
            behaviour_log_probs=np.full(actions.shape, -6.0, np.float32),
            reward=ends * float(success) * ones,
            discount=ones - ends,
            invalid=np.zeros(LENGTH, np.uint8),
            repeats=np.zeros(LENGTH, np.uint8),
            mask=np.ones(LENGTH, np.uint8),
            version=np.ones(LENGTH, np.int64),
        )
        made.append(
            Episode(
                trajectory=path, actor="a", boot="b", seq=seq, source="policy", task_id="t",
                template="t", family="f", suite="general", goal="g", seed=0,
                ending=Ending.SUCCESS if success else Ending.HORIZON, cause="",
                verdict={"status": "success" if success else "failure"}, lineage=1,
                temperature=1.0, duration_s=1.0, prompts=("p",) * LENGTH, actions=("a",) * LENGTH,
            )
        )  # fmt: skip
    return made


def batch_of(model: autoui.AutoUIConfig, steps: int) -> Batch:
    """Packs a full batch of them."""
    replay = Replay(steps // LENGTH, np.random.default_rng(0))
    for one in episodes(model, steps // LENGTH):
        replay.insert(one)
    return pack(replay.sample(steps), steps, horizon=20)


def updates_of(model: autoui.AutoUIConfig) -> Updates:
    # Without the attention's supervision, which a bare supervised step has not either.
    config = UpdateConfig(grounding=0.0)
    return make_updates(model, config, SamplingConfig(), sharding.make_mesh())


def main() -> None:
    for name, steps in CASES.items():
        short = {} if name == "tiny" else {"prompt_length": 128, "action_length": 32}
        model = dataclasses.replace(autoui.PRESETS[name], **short)
        updates, batch = updates_of(model), batch_of(model, steps)
        taught = Steps(batch.prompt_ids, batch.features, batch.action_ids, batch.touched)
        state = [updates.init(jax.random.key(0))]

        def supervised() -> None:
            state[0], report = updates.imitate(state[0], taught)  # noqa: B023
            jax.block_until_ready((state[0].params, report))  # noqa: B023

        def policy() -> None:
            state[0], report = updates.improve(state[0], batch)  # noqa: B023
            jax.block_until_ready((state[0].params, report))  # noqa: B023

        def critic() -> None:
            state[0], report = updates.improve_critic(state[0], batch)  # noqa: B023
            jax.block_until_ready((state[0].critic_params, report))  # noqa: B023

        def priorities() -> None:
            means, config = RunningMeans(), PriorityConfig()
            for _ in range(steps // LENGTH):  # noqa: B023
                terms = EpisodeTerms(0.1, 0.9, 0.05)
                means.update(terms)
                priority(means.normalise(terms), 1.0, 0.5, config)

        ways: dict[str, Callable[[], None]] = {
            "supervised": supervised, "policy": policy, "critic": critic, "priorities": priorities,
        }  # fmt: skip
        seconds = medians(ways, ROUNDS)
        row = {
            "name": f"update_{name}",
            "steps": steps,
            "over_supervised": round(seconds["policy"] / seconds["supervised"], 3),
            **{f"{way}_ms": round(1000 * taken, 2) for way, taken in seconds.items()},
            "threads": threads(),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
