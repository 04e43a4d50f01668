"""Evaluates a checkpoint: `python launch/evaluate.py --checkpoint runs/x/checkpoints ...`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import tyro

from actors.evaluators.config import JudgeConfig
from common.errors import ConfigError, DistRLError
from launch import environment, one_thread

if TYPE_CHECKING:
    from actors.evaluate import Result
    from launch.evaluation import Evaluation, Loaded

MODES = ("sampled", "greedy")
PROGRESS_EVERY = 20  # episodes
POLL_S = 5.0


@dataclasses.dataclass(frozen=True)
class Args(JudgeConfig):
    """Runs an agent on a fixed panel of tasks and reports its success with intervals."""

    checkpoint: pathlib.Path | None = None
    """A run's `checkpoints` folder (the newest is taken), one step's folder in it, or what
    launch/convert.py made. Other agents take its step limits."""
    agent: Literal["policy", "expert", "random", "prompted"] = "policy"
    """Who acts: the checkpoint's policy, the scripted expert of the simulated phone, random
    actions, or a vision-language model with marks on the screen."""
    agent_model: str = "gemini"
    """Of `prompted`: gemini, gemini:MODEL or openai:MODEL; endpoint and limits are the judge's."""
    emulator: tuple[str, ...] = ("phone",)
    """Running serials such as emulator-6554 or host:port, or `phone` to start simulated ones."""
    phones: int = 1
    """How many are started for `phone`."""
    tasks: str = "all-test"
    """A suite such as general-test, a YAML file of tasks, or a text file with an instruction a
    line, which needs a judge that looks."""
    train_tasks: str = ""
    """Tasks that it was trained on, to report overlap; by default those beside a built-in suite."""
    preset: Literal["", "paper-general", "paper-webshop", "digirl-general", "digirl-webshop"] = ""
    """Fixes how many test tasks there are, step limit and sampling as that paper states them."""
    episodes: int = 100
    """Entries of the panel, a task and a phone layout each; tasks are taken evenly."""
    repeats: int = 1
    """How often each entry is run, for pass@k and flaky tasks."""
    modes: tuple[str, ...] = MODES
    """Ways of acting of a policy: sampled as in training, and always the likeliest token."""
    horizon: int | None = None
    """The most steps of an episode; by default the checkpoint's."""
    output: pathlib.Path | None = None
    """Where the JSON report goes, with .md and .html beside it; a short form is printed anyway."""
    follow: bool = False
    """Evaluate each new checkpoint of the folder until its run is finished; the step becomes a part
    of the output's name."""
    follow_timeout_s: float = 3600.0
    """How long to wait for a new one."""
    audit_judge: str = ""
    """A second judge that is asked the same for --judge-records, as launch/audit.py compares."""
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
        _run(args, environment.adb_port(args.adb_port))
    except ConfigError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    except DistRLError as error:  # phones that are gone for good, or a judge that stops it all
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    return 0


def _check(args: Args) -> None:
    for name, low, high in (
        ("episodes", 1, 100_000),
        ("repeats", 1, 1000),
        ("phones", 1, 64),
        ("seed", 0, 2**31 - 1),
        ("follow_timeout_s", 1, 10**7),
    ):
        value = getattr(args, name)
        if not low <= value <= high:
            raise ConfigError(f"--{name.replace('_', '-')} must be in {low}..{high}, not {value}.")
    if args.horizon is not None and not 1 <= args.horizon <= 1000:
        raise ConfigError(f"--horizon must be in 1..1000, not {args.horizon}.")
    if unknown := set(args.modes) - set(MODES):
        raise ConfigError(f"--modes are sampled and greedy, not {', '.join(sorted(unknown))}.")
    if args.checkpoint is None and (args.agent == "policy" or args.follow):
        raise ConfigError("--checkpoint says whose policy is evaluated; it is missing.")
    if args.audit_judge and args.judge_records is None:
        raise ConfigError("--audit-judge needs a file for the verdicts: --judge-records.")
    args.check_judge()
    if args.output:
        try:
            args.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--output {args.output} can't be written: {error}.") from error


def _run(args: Args, adb_port: int) -> None:
    one_thread.configure()  # before JAX is imported
    from actors.device import emulator
    from actors.evaluators import build
    from launch import report
    from launch.evaluation import Evaluation

    evaluation = Evaluation(args, os.environ)
    first = None if args.follow else evaluation.load(args.checkpoint)
    names = [name for name in args.emulator for _ in range(args.phones if name == "phone" else 1)]
    with contextlib.ExitStack() as stack:
        built = stack.enter_context(build.opened(args, os.environ, args.audit_judge))
        devices = [stack.enter_context(emulator.opened(name, adb_port)) for name in names]
        for loaded in [first] if first else _followed(args, evaluation):
            found = evaluation.run(loaded, devices, built, _shown)
            if args.output:
                output = args.output
                if args.follow:
                    output = output.with_stem(f"{output.stem}-{found['step']}")
                report.write(found, output)
            print(json.dumps(_short(found), indent=1), flush=True)


def _followed(
    args: Args,
    evaluation: Evaluation,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Loaded]:
    """Yields each new checkpoint of a run until that is finished."""
    assert args.checkpoint is not None
    folder, done = args.checkpoint, -1
    deadline = clock() + args.follow_timeout_s
    while clock() < deadline:
        finished = _finished(folder.parent / "learner.json")
        steps = evaluation.steps(folder)
        if steps and steps[-1] > done:
            done = steps[-1]
            yield evaluation.load(folder / str(done))
            deadline = clock() + args.follow_timeout_s
        elif finished:
            return
        else:
            sleep(POLL_S)
    print(f"No new checkpoint within {args.follow_timeout_s:.0f} s.", file=sys.stderr)


def _finished(record: pathlib.Path) -> bool:
    """Whether a learner says that its run is over."""
    try:
        return bool(json.loads(record.read_text()).get("finished"))
    except (OSError, ValueError):
        return False


def _shown(running: Iterable[Result], mode: str, episodes: int) -> Iterator[Result]:
    """Passes results on and says now and then how far they are."""
    done, successes = 0, 0
    for result in running:
        done, successes = done + 1, successes + result.success
        if done % PROGRESS_EVERY == 0:
            said = f"{mode} {done} of {episodes}, success {successes / done:.2f} so far"
            print(said, file=sys.stderr, flush=True)
        yield result


def _short(report: dict[str, Any]) -> dict[str, Any]:
    """The report without its long lists."""
    return {
        key: {k: v for k, v in value.items() if k not in ("tasks", "episodes")}
        if key in report["modes"]
        else value
        for key, value in report.items()
    }


if __name__ == "__main__":
    sys.exit(main())
