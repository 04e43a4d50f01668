"""The learner: `python launch/learner.py --workdir runs/x`.

Goes on from the newest checkpoint in the folder, if there is one.
"""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import json
import logging
import pathlib
import signal
import sys
import types
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from common.errors import ConfigError, DistRLError


@dataclasses.dataclass(frozen=True)
class Args:
    """Trains a policy on the episodes that actors send."""

    workdir: pathlib.Path
    """Folder of the run: config, metrics, checkpoints, episodes."""
    listen: str = "tcp://127.0.0.1:7000"
    """Where actors send episodes; parameters are served on the next port."""
    preset: Literal["default", "quick"] = "quick"
    """`quick`: the tiny model on the simulated phone; `default`: the paper's settings."""
    algorithm: Literal[
        "distrl",
        "distrl-released",
        "digirl",
        "digirl-async",
        "filtered-bc",
        "filtered-bc-plain",
        "impala",
        "reinforce",
    ] = "filtered-bc"
    """`distrl`: A-RIDE with DPER; `filtered-bc`: imitation of the episodes that succeeded, invalid
    steps left out; all of them are in learner/presets.py."""
    dper: bool = True
    """Replay by priority; `--no-dper`: uniform replay."""
    retrace: bool = True
    """Multi-step off-policy advantages; `--no-retrace`: one-step ones."""
    entropy: bool = True
    """An entropy bonus, where the algorithm has one."""
    penalty: bool = True
    """Invalid and repeated actions are not imitated, or cost reward."""
    curriculum: bool = True
    """What surprises, by the instruction's value, is replayed more."""
    init: pathlib.Path | None = None
    """A checkpoint that the policy starts from, with its tokenizer, as launch/convert.py makes one
    of a Hugging Face folder; default: a fresh one."""
    seed: int = 0
    tasks: str | None = None
    """A suite such as all-train, general-train, webshop-train, or a YAML file of tasks."""
    episodes: int | None = None
    """Episodes of the policy after the warm start."""
    demonstrations: int | None = None
    """Episodes of the expert for the warm start; 0 starts from nothing."""
    offline_data: pathlib.Path | None = None
    """Recorded episodes to learn from before and beside new ones: a folder of launch/data.py."""
    offline_updates: int | None = None
    """Updates of the policy on them alone, before it learns online; with `--episodes 0`, all."""
    record: bool = False
    """Keeps every episode that arrives in the folder's `recorded`, for another run's
    --offline-data."""
    minutes: float | None = None
    """Wall time after which the learner stops, 0 for none."""
    set: Annotated[dict[str, str], tyro.conf.UseAppendAction] = dataclasses.field(
        default_factory=dict
    )
    """Any other setting by its dotted name, such as `--set update.lambda_ 0.8`."""
    threads: int = 0
    """Threads of the CPU backend; 0: as many as there are cores."""
    insecure: bool = False
    """Allows plain sockets on addresses that other machines can reach."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for name in ("absl", "jax"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return _run(args)
    except ConfigError as error:
        print(f"learner: {error}", file=sys.stderr)
        return 2
    except DistRLError as error:  # the run has gone wrong for good
        print(f"learner: {error}", file=sys.stderr)
        return 1


def _run(args: Args) -> int:
    import os

    if args.threads == 1:
        os.environ["XLA_FLAGS"] = (
            os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
        )
    os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", str(pathlib.Path("~/.cache/distrl/jax").expanduser())
    )
    from learner import build  # imports JAX, which reads the flags above
    from learner.presets import ABLATIONS

    stop = _StopSignal()
    with build.learner(
        workdir=args.workdir,
        listen=args.listen,
        config=build.configure(
            args.preset,
            args.algorithm,
            _overrides(args),
            [part for part in ABLATIONS if not getattr(args, part)],
        ),
        seed=args.seed,
        insecure=args.insecure,
    ) as learner:
        learner.run(stop.requested)
        learner.farewell(timeout_s=5.0)
        summary = {
            "seed": args.seed,
            "algorithm": args.algorithm,
            "finished": learner.progress.phase == "done",
            **dataclasses.asdict(learner.progress),
            "final_step": learner.progress.updates,
        }
    (args.workdir / "learner.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return 0


def _overrides(args: Args) -> dict[str, str | int | float]:
    named = {
        "init": str(args.init.absolute()) if args.init else None,
        "tasks": args.tasks,
        "minutes": args.minutes,
        "offline.data": str(args.offline_data.absolute()) if args.offline_data else None,
        "offline.updates": args.offline_updates,
        "record": args.record or None,
        "reinforce.episodes": args.episodes,
        "warm_start.demonstrations": args.demonstrations,
    }
    return {**args.set, **{name: value for name, value in named.items() if value is not None}}


class _StopSignal:
    """Turns the first SIGINT or SIGTERM into a request; a second one ends the process at once."""

    def __init__(self) -> None:
        self._requested = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        self._requested = True
        signal.signal(number, signal.SIG_DFL)

    def requested(self) -> bool:
        return self._requested


if __name__ == "__main__":
    sys.exit(main())
