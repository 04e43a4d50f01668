"""Which critic tells success from failure: `python benchmarks/critic.py RUN...`, one line a kind.

Trains each on the policy's episodes of finished runs that kept their screens, and prints the area
under the ROC curve on those held out: of the state value over steps, of the instruction value over
episodes. `t5` reads with the first run's final policy. `roberta` is measured only if --roberta
names a folder with its weights: random ones would say nothing about it.
"""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import functools
import io
import json
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import tyro
from PIL import Image

from common.models import vision
from common.models.autoui import AutoUIConfig
from common.models.distribution import FREE
from common.models.text import Tokenizer
from common.types import Ending, Episode, Trajectory
from learner import config as configs
from learner import sharding
from learner.checkpoint import load_policy
from learner.critic import CriticConfig, make_critic, read_prompts
from learner.packing import Batch, pack
from learner.replay import Entry, Handle
from learner.texts import TextEncoder
from learner.update import make_updates

STEPS = 512  # of a batch, as `reinforce.critic_steps`
HORIZON = 14  # the longest of the quick preset
HELD_OUT = 4  # each how many-th episode


@dataclasses.dataclass(frozen=True)
class Args:
    """Compares critics on recorded episodes."""

    runs: tyro.conf.Positional[tuple[pathlib.Path, ...]] = ()
    """Folders of runs; by default all of runs/."""
    roberta: str = ""
    """Folder of a RoBERTa's config.json, model.safetensors and tokenizer.json."""
    updates: int = 1000
    """Gradient steps."""
    seeds: int = 3
    """Splits and initial parameters."""


def main() -> None:
    args = tyro.cli(Args)
    runs = args.runs or tuple(sorted(pathlib.Path("runs").glob("*")))
    runs = tuple(run for run in runs if any(run.glob("episodes/*/episode.json")))
    if not runs:
        print(json.dumps({"name": "critic", "skipped": "no run with episodes; name some"}))
        return
    params, meta = load_policy(runs[0] / "checkpoints")
    model, tokenizer = AutoUIConfig.from_dict(meta["model"]), Tokenizer.from_json(meta["tokenizer"])
    entries = [_entry(episode) for run in runs for episode in _episodes(run, model, tokenizer)]
    kinds = [CriticConfig("bag"), CriticConfig("t5")]
    if args.roberta:
        kinds.append(CriticConfig("roberta", args.roberta))
    for critic in kinds:
        results = [
            _measure(critic, entries, model, params, args.updates, seed)
            for seed in range(args.seeds)
        ]
        means = {name: float(np.mean([r[name] for r in results])) for name in results[0]}
        spread = {f"{name}_sd": float(np.std([r[name] for r in results])) for name in results[0]}
        numbers = {name: round(x, 4) for name, x in (means | spread).items()}
        counts = {"episodes": len(entries), "successes": sum(e.episode.success for e in entries)}
        print(json.dumps({"name": "critic", "kind": critic.kind, **counts, **numbers}), flush=True)


def _measure(
    critic: CriticConfig,
    entries: Sequence[Entry],
    model: AutoUIConfig,
    params: Any,
    updates: int,
    seed: int,
) -> dict[str, float]:
    encode = TextEncoder(critic.roberta, 100_000) if critic.kind == "roberta" else None
    config = dataclasses.replace(configs.quick().update, critic=critic)
    steps = make_updates(
        model,
        config,
        FREE,
        sharding.make_mesh(),
        text_width=encode.width if encode else 0,
    )
    state = steps.init(jax.random.key(seed), params)
    rng = np.random.default_rng(seed)
    order = [entries[i] for i in rng.permutation(len(entries))]
    held_out, train = order[::HELD_OUT], [e for i, e in enumerate(order) if i % HELD_OUT]
    took = []
    for _ in range(updates):
        batch = next(_batches([train[i] for i in rng.permutation(len(train))], encode))
        began = time.perf_counter()
        state, scalars = steps.improve_critic(state, batch)
        jax.block_until_ready(scalars)
        took.append(time.perf_counter() - began)

    @jax.jit
    def values(critic_params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        if critic.kind == "t5":
            batch = batch._replace(texts=read_prompts(params, model, batch.prompt_ids))
        found = make_critic(critic, model.vocab_size).apply(critic_params, batch)
        return found.pessimistic(), found.instruction

    columns: list[tuple[np.ndarray, ...]] = []
    for batch in _batches(held_out, encode):
        state_value, instruction = values(state.critic_params, batch)
        rows = batch.mask > 0
        first = batch.time[rows] == 0
        columns.append(
            (
                np.asarray(state_value)[rows],
                np.asarray(instruction)[rows],
                batch.outcome[rows],
                first,
            )
        )
    state_value, instruction, outcome, first = map(np.concatenate, zip(*columns, strict=True))
    return {
        "auc_state": auc(state_value, outcome),
        "auc_instruction": auc(instruction[first], outcome[first]),
        "step_ms": 1000 * float(np.median(took)),
    }


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the chance that a positive scores higher than a negative; ties count one half."""
    negative = np.sort(scores[labels == 0])
    positive = scores[labels == 1]
    below = np.searchsorted(negative, positive, "left") + np.searchsorted(
        negative, positive, "right"
    )
    return float(below.mean() / 2 / len(negative))


def _batches(entries: Sequence[Entry], encode: TextEncoder | None) -> Iterator[Batch]:
    chosen: list[Entry] = []
    for entry in entries:
        if sum(len(e.episode) for e in chosen) + len(entry.episode) > STEPS:
            yield pack(chosen, STEPS, HORIZON, encode)
            chosen = []
        chosen.append(entry)
    yield pack(chosen, STEPS, HORIZON, encode)


def _entry(episode: Episode) -> Entry:
    return Entry(Handle(0, 0), episode, np.full(len(episode), float(episode.success), np.float32))


def _episodes(run: pathlib.Path, model: AutoUIConfig, tokenizer: Tokenizer) -> Iterator[Episode]:
    """Yields the policy's episodes that were not cut short and have their screens."""
    for path in sorted(run.glob("episodes/*/episode.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["source"] == "policy" and record["ending"] != Ending.TRUNCATED:
            yield _episode(path.parent, record, model, tokenizer)


def _episode(
    folder: pathlib.Path, record: dict[str, Any], model: AutoUIConfig, tokenizer: Tokenizer
) -> Episode:
    """Returns an episode without its actions, which no critic reads."""
    steps, length = record["steps"], len(record["steps"])
    ids = functools.partial(tokenizer.encode_prompt, length=model.prompt_length)
    screens = [(folder / f"{number:02d}.png").read_bytes() for number in range(length)]
    reward, discount = np.zeros(length, np.float32), np.ones(length, np.float32)
    reward[-1], discount[-1] = record["ending"] == Ending.SUCCESS, 0.0
    nothing = np.zeros((length, model.action_length))
    texts = ("template", "family", "goal", "cause")
    return Episode(
        trajectory=Trajectory(
            prompt_ids=np.stack([ids(prompt) for prompt in record["prompts"]]),
            features=np.stack([_features(screen) for screen in screens]),
            action_ids=nothing.astype(np.int32),
            behaviour_log_probs=nothing.astype(np.float32),
            reward=reward,
            discount=discount,
            invalid=np.array([step["invalid"] for step in steps], np.uint8),
            repeats=np.array([step["repeats"] for step in steps], np.uint8),
            mask=np.ones(length, np.uint8),
            version=np.full(length, record["version"], np.int64),
        ),
        actor="",
        boot="",
        seq=0,
        source=record["source"],
        task_id=record["task"],
        **{name: record[name] for name in texts},
        suite="",
        seed=record["seed"],
        ending=Ending(record["ending"]),
        verdict=record["verdict"],
        lineage=record["lineage"],
        temperature=record["temperature"],
        duration_s=record["duration_s"],
        prompts=tuple(record["prompts"]),
        actions=tuple(step["action"] for step in steps),
    )


def _features(screen: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(screen)) as image:
        return vision.patches(np.asarray(image.convert("RGB")))


if __name__ == "__main__":
    main()
