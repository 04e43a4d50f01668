"""What a learner and its actors do: `python launch/status.py --learner tcp://127.0.0.1:7000`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import rich.console
import rich.table
import tyro

from common import channel
from common.errors import ConfigError
from common.keys import ActorKeys

HEADER = ("actor", "device", "state", "last seen", "version", "episodes", "spool", "dead", "detail")


@dataclasses.dataclass(frozen=True)
class Args:
    """Asks a learner how it and its actors are."""

    learner: str = "tcp://127.0.0.1:7000"
    """Where the learner listens."""
    keys: pathlib.Path | None = None
    """A folder of keys that launch/keys.py made, for a learner that has keys."""
    insecure: bool = False
    """Allows to ask a learner on another machine without keys."""
    timeout_s: float = 5.0
    """How long to wait for the answer."""
    json: bool = False
    """Prints the whole answer as JSON."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    try:
        keys = ActorKeys.load(args.keys) if args.keys else None
        status = channel.ask_status(args.learner, args.timeout_s, args.insecure, keys)
        if status is None:
            raise ConfigError(
                f"No learner answered at {args.learner} within {args.timeout_s:g} s. Is it running "
                "there? It answers once it has compiled."
            )
    except ConfigError as error:
        print(f"status: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(status, indent=1))
        return 0
    console = rich.console.Console()
    for line in about_learner(status):
        print(line)
    if console.is_terminal:
        table = rich.table.Table(*HEADER)
        for row in about_actors(status):
            table.add_row(*row)
        console.print(table)
    else:
        for row in (HEADER, *about_actors(status)):
            print("\t".join(row))
    return 0


def about_learner(status: dict[str, Any]) -> Iterator[str]:
    """Yields lines about the run and about what came and what was refused."""
    yield (
        f"Run {status['run']}: {status['mode']}, version {status['lineage']}.{status['version']}"
    )
    learner = {k: v for k, v in status["learner"].items() if isinstance(v, int | float | str)}
    yield "Learner: " + ", ".join(f"{name} {_short(value)}" for name, value in learner.items())
    counters = status["counters"]
    dropped = {n: c for n, c in counters.items() if n.startswith("refused/") or n == "replies_lost"}
    yield "Taken: " + ", ".join(
        f"{name} {count}" for name, count in sorted(counters.items()) if name not in dropped
    )
    yield "Dropped: " + (
        ", ".join(f"{name} {count}" for name, count in sorted(dropped.items()) if count) or "none"
    )


def about_actors(status: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields a row for each actor, as in `HEADER`; those whose lease has ended are lost."""
    newest = status["version"]
    for name, actor in sorted(status["actors"].items()):
        lost = actor["last_seen_s"] > channel.LEASE_S
        version = "none"
        if actor["version"] is not None:
            lineage, step = actor["version"]
            behind = newest - step if lineage == status["lineage"] else None
            version = f"{lineage}.{step}" + (f" ({behind} behind)" if behind else "")
        yield (
            name,
            actor["device"],
            "lost" if lost else actor["state"],
            f"{actor['last_seen_s']:.1f} s ago",
            version,
            str(actor["episodes"]),
            str(actor["spooled"]),
            _dead(actor),
            actor["detail"],
        )


def _dead(actor: dict[str, Any]) -> str:
    """Returns how many episodes were refused for good, and why its messages were."""
    reasons = ", ".join(f"{code} {count}" for code, count in sorted(actor["refused"].items()))
    return f"{actor['dead']}" + (f" ({reasons})" if reasons else "")


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
