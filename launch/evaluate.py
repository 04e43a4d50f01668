"""Evaluates a checkpoint: `python launch/evaluate.py --checkpoint runs/x/checkpoints ...`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import itertools
import json
import math
import pathlib
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import tyro

from common.errors import ConfigError
from launch import environment, one_thread

EVALUATION_SEEDS = 1_000_000_000  # phone layouts from here on are never trained on


@dataclasses.dataclass(frozen=True)
class Args:
    """Runs a checkpoint's policy on tasks and reports its success with Wilson intervals."""

    checkpoint: pathlib.Path
    """A run's `checkpoints` folder (the newest is taken) or one step's folder in it."""
    emulator: str = "phone"
    """A running serial such as emulator-6554, host:port, or `phone` to start a simulated one."""
    tasks: str = "all-test"
    """A suite such as general-test, or a YAML file of tasks."""
    episodes: int = 100
    """Episodes for each way of acting; tasks are taken evenly."""
    modes: tuple[str, ...] = ("sampled", "greedy")
    output: pathlib.Path | None = None
    """Where the JSON report goes; it is printed in any case."""
    seed: int = 0
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    try:
        report = _run(args)
    except ConfigError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    text = json.dumps(report, indent=1)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def _run(args: Args) -> dict[str, Any]:
    if args.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, not {args.episodes}.")
    if unknown := set(args.modes) - {"sampled", "greedy"}:
        raise ConfigError(f"--modes are sampled and greedy, not {', '.join(sorted(unknown))}.")
    adb_port = environment.adb_port(args.adb_port)
    one_thread.configure()
    from actors import evaluate
    from actors.device import emulator
    from actors.environment import PhoneEnvironment
    from actors.evaluators.state import StateJudge
    from actors.policy import Policy
    from common.models.autoui import AutoUIConfig
    from common.models.text import Tokenizer
    from common.tasks import load_tasks
    from learner.checkpoint import load_policy

    params, meta = load_policy(args.checkpoint)
    tasks = list(load_tasks(args.tasks))
    panel = random.Random(args.seed)
    panel.shuffle(tasks)  # an even share of all tasks, also where there are more than episodes
    chosen = list(itertools.islice(itertools.cycle(tasks), args.episodes))
    seeds = [EVALUATION_SEEDS + panel.randrange(10**9) for _ in chosen]
    report: dict[str, Any] = {
        "checkpoint": str(args.checkpoint),
        "step": meta["step"],
        "tasks": args.tasks,
        "seed": args.seed,
    }
    policy = Policy(
        AutoUIConfig.from_dict(meta["model"]), Tokenizer.from_json(meta["tokenizer"]), args.seed
    )
    policy.set_params(params, meta["step"])
    with emulator.opened(args.emulator, adb_port) as device:
        for mode in args.modes:
            began = time.monotonic()
            phone = PhoneEnvironment(device, StateJudge(), meta["horizon"])
            temperature = meta["temperature"] if mode == "sampled" else 0.0
            results = evaluate.evaluate(phone, policy, chosen, seeds, temperature)
            report[mode] = summarise(results) | {"wall_s": round(time.monotonic() - began, 1)}
    return report


def summarise(results: Sequence[Any]) -> dict[str, Any]:
    """Success over the episodes that were not cut short by the device, overall and by family."""
    judged = [result for result in results if result.ending != "truncated"]
    low, high = wilson(sum(result.success for result in judged), len(judged))
    steps = sum(result.steps for result in judged)
    families: dict[str, list[bool]] = {}
    for result in judged:
        families.setdefault(result.family, []).append(result.success)
    return {
        "success": sum(result.success for result in judged) / max(len(judged), 1),
        "n": len(judged),
        "low": low,
        "high": high,
        "truncated": len(results) - len(judged),
        "steps_mean": steps / max(len(judged), 1),
        "invalid_share": sum(result.invalid for result in judged) / max(steps, 1),
        "families": {
            family: {"success": sum(done) / len(done), "n": len(done)}
            for family, done in sorted(families.items())
        },
    }


def wilson(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a share at 95 % (Wilson 1927); (0, 1) for no trials."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


if __name__ == "__main__":
    sys.exit(main())
