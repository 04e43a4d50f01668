"""Evaluates a checkpoint: `python launch/evaluate.py --checkpoint runs/x/checkpoints ...`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import itertools
import json
import logging
import math
import pathlib
import random
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import tyro

from common.errors import ConfigError, DistRLError
from launch import environment, one_thread

if TYPE_CHECKING:
    from actors.evaluate import Result

EVALUATION_SEEDS = 1_000_000_000  # phone layouts from here on are never trained on
MODES = ("sampled", "greedy")
PROGRESS_EVERY = 20  # episodes


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
    modes: tuple[str, ...] = MODES
    """Ways of acting: sampled as in training, and always the likeliest token."""
    output: pathlib.Path | None = None
    """Where the JSON report goes; it is printed in any case."""
    seed: int = 0
    """Of tasks, phone layouts and samples."""
    vision_folder: pathlib.Path | None = None
    """Folder of BLIP-2 or of its vision model, for a checkpoint that takes its features."""
    vision_dtype: Literal["float32", "bfloat16"] = "float32"
    """What it computes in; best what the actors took."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    # Orbax warns of handlers that it finds by itself.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        _check(args)
        report = _run(args, environment.adb_port(args.adb_port))
    except ConfigError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    except DistRLError as error:  # a phone that is gone for good
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    text = json.dumps(report, indent=1)
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


def _check(args: Args) -> None:
    if not 1 <= args.episodes <= 100_000:
        raise ConfigError(f"--episodes must be in 1..100000, not {args.episodes}.")
    if not 0 <= args.seed < 2**31:
        raise ConfigError(f"--seed must be in 0..{2**31 - 1}, not {args.seed}.")
    if unknown := set(args.modes) - set(MODES):
        raise ConfigError(f"--modes are sampled and greedy, not {', '.join(sorted(unknown))}.")
    if args.output:
        try:
            args.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--output {args.output} can't be written: {error}.") from error


def _run(args: Args, adb_port: int) -> dict[str, Any]:
    one_thread.configure()  # before JAX is imported
    from actors import evaluate
    from actors.device import emulator
    from actors.environment import PhoneEnvironment
    from actors.evaluators.state import StateJudge
    from actors.policy import Policy
    from common.models import vision
    from common.models.autoui import AutoUIConfig
    from common.models.distribution import SamplingConfig
    from common.models.text import Tokenizer
    from common.tasks import load_tasks
    from learner.checkpoint import POLICY_META, load_policy

    tasks = list(load_tasks(args.tasks))
    params, meta = load_policy(args.checkpoint, (*POLICY_META, "horizon", "sampling"))
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
    model, tokenizer = AutoUIConfig.from_dict(meta["model"]), Tokenizer.from_json(meta["tokenizer"])
    extract = vision.extractor(model, args.vision_folder, args.vision_dtype)
    trained = SamplingConfig(**meta["sampling"])
    ways = {"sampled": trained, "greedy": dataclasses.replace(trained, temperature=0.0)}
    with emulator.opened(args.emulator, adb_port) as device:
        phone = PhoneEnvironment(device, StateJudge(), meta["horizon"])
        for mode in args.modes:
            began = time.monotonic()
            policy = Policy(model, tokenizer, args.seed, ways[mode], extract)
            policy.set_params(params, meta["step"])
            running = evaluate.evaluate(phone, policy, chosen, seeds)
            results = list(_shown(running, mode, args.episodes))
            report[mode] = summarise(results) | {"wall_s": round(time.monotonic() - began, 1)}
    return report


def _shown(running: Iterable[Result], mode: str, episodes: int) -> Iterable[Result]:
    """Passes results on and says now and then how far they are."""
    done, successes = 0, 0
    for result in running:
        done, successes = done + 1, successes + result.success
        if done % PROGRESS_EVERY == 0:
            said = f"{mode} {done} of {episodes}, success {successes / done:.2f} so far"
            print(said, file=sys.stderr, flush=True)
        yield result


def summarise(results: Sequence[Result]) -> dict[str, Any]:
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
    """Returns Wilson's score interval of a share at 95 % (Wilson 1927); (0, 1) for no trials."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


if __name__ == "__main__":
    sys.exit(main())
