"""The whole system on this machine: python launch/local.py [--seed 0] [--workdir runs/x]

Starts an adb server, simulated phones, the learner and the actors as processes, shows what they do,
evaluates the checkpoints of the warm start and of the end, and stops everything.
"""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import datetime
import json
import logging
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

import rich.console
import rich.logging
import rich.table
import tyro

from common import errors
from launch import summary
from launch.display import Display
from launch.system import LocalConfig, LocalSystem

INTERRUPTED = 130  # the exit code that shells report after Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    config = tyro.cli(LocalConfig, args=argv)
    now = datetime.datetime.now()
    workdir = (config.workdir or pathlib.Path(f"runs/local-{now:%Y%m%d-%H%M%S}")).resolve()
    try:
        config.check()
        _open(workdir, config.seed)
        _run(config, workdir)
    except errors.DistRLError as error:
        print(f"local: {error}", file=sys.stderr)
        return 2 if isinstance(error, errors.ConfigError) else 1
    except KeyboardInterrupt:
        print(f"Everything is stopped; go on with --workdir {workdir}", file=sys.stderr)
        return INTERRUPTED
    return 0


def _run(config: LocalConfig, workdir: pathlib.Path) -> None:
    console = rich.console.Console()
    terminal = rich.logging.RichHandler(console=console, show_path=False)
    handler = terminal if console.is_terminal else logging.StreamHandler()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[handler])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    print(f"Run folder: {workdir}", flush=True)
    with LocalSystem(config, workdir, display := Display(console)) as system, display:
        result = system.run()
    summary.write(result, workdir)
    _print(console, result)
    print(f"Written to {workdir / 'summary.json'}")


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _open(workdir: pathlib.Path, seed: int) -> None:
    """Makes the run folder, or lets an interrupted run go on in it.

    Raises:
      ConfigError: It holds something else, or a run with another seed, or can't be made.
    """
    record = workdir / "local.json"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        if record.exists():
            before = json.loads(record.read_text())["seed"]
            if before != seed:
                raise errors.ConfigError(
                    f"{workdir} holds a run with --seed {before}; give that seed to go on with it, "
                    "or name another --workdir."
                )
        elif any(workdir.iterdir()) and not (workdir / "checkpoints").is_dir():
            raise errors.ConfigError(
                f"{workdir} holds other files and no checkpoint; name another --workdir."
            )
        record.write_text(json.dumps({"seed": seed}) + "\n")
    except (OSError, ValueError, KeyError) as error:
        raise errors.ConfigError(f"{workdir} is no usable run folder: {error}.") from error


def _print(console: rich.console.Console, result: dict[str, Any]) -> None:
    """Prints a summary as a table on a terminal and as plain lines elsewhere."""
    if not console.is_terminal:
        print(summary.markdown(result))
        return
    table = rich.table.Table(*summary.HEADER, title="Success on held-out instructions")
    for row in summary.rows(result):
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
