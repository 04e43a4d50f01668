"""Looks at everything that a run needs: `python launch/doctor.py --learner=tcp://host:7000`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import tyro

from common.errors import ConfigError
from launch import checks, environment
from launch.checks import Finding, Status

EXIT_CODES = {Status.PASS: 0, Status.WARN: 0, Status.FAIL: 1}
MARKS = {Status.PASS: "pass", Status.WARN: "warn", Status.FAIL: "FAIL"}


@dataclasses.dataclass(frozen=True)
class Args:
    """Checks Python, JAX, adb, phones, the emulator, this machine, learner and judge."""

    emulator: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A serial or host:port to look at, or avd:NAME; by default all that adb shows."""
    learner: str = ""
    """Address of a learner that should answer, such as tcp://127.0.0.1:7000."""
    judge: Literal["state", "gemini"] = "state"
    """Whose service should answer; the state judge needs none."""
    avd_program: str = "emulator"
    """The emulator program, or its path."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""
    limit_s: float = 30.0
    """How long one check may take."""
    json: bool = False
    """Print a JSON object instead of lines."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if nothing failed, 1 if something did, 2 for bad flags."""
    args = tyro.cli(Args, args=argv)
    try:
        adb_port = environment.adb_port(args.adb_port)
        if not 0.1 <= args.limit_s <= 600:
            raise ConfigError(f"--limit-s must be in 0.1..600, not {args.limit_s}.")
    except ConfigError as error:
        print(f"doctor: {error}", file=sys.stderr)
        return 2
    findings = []
    for name, check in _checks(args, adb_port):
        finding = checks.run(name, check, args.limit_s)
        findings.append(finding)
        if not args.json:
            print(_line(finding), flush=True)
    worst = max((finding.status for finding in findings), key=list(Status).index)
    if args.json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        print(json.dumps({"status": worst, "checks": rows}, indent=1))
    sys.stdout.flush()
    # A check that is over its limit may still be stuck in a thread.
    return EXIT_CODES[worst]


def _checks(args: Args, adb_port: int) -> list[tuple[str, Callable[[], checks.Answer]]]:
    found: list[tuple[str, Callable[[], checks.Answer]]] = [
        ("python", checks.python),
        ("jax", lambda: checks.jax(args.limit_s)),
        ("adb", checks.adb),
        ("adb server", lambda: checks.adb_server(adb_port)),
    ]
    attached = [name for name in args.emulator if not name.startswith("avd:")]
    names = [name.removeprefix("avd:") for name in args.emulator if name.startswith("avd:")]
    for serial in attached if args.emulator else checks.serials(adb_port):
        found.append((f"phone {serial}", lambda serial=serial: checks.phone(serial, adb_port)))  # type: ignore[misc]
    found += [
        ("emulator", lambda: checks.emulator(args.avd_program, bool(names))),
        ("avds", lambda: checks.avds(args.avd_program, names)),
        ("kvm", lambda: checks.kvm(bool(names))),
        ("disk", checks.disk),
        ("memory", checks.memory),
        ("ports", checks.ports),
    ]
    if args.learner:
        found.append(("learner", lambda: checks.learner(args.learner)))
    found.append(("judge", lambda: checks.judge(args.judge, os.environ, args.limit_s)))
    return found


def _line(finding: Finding) -> str:
    hint = f"\n     -> {finding.hint}" if finding.hint else ""
    return f"{MARKS[finding.status]:4} {finding.name}: {finding.said}{hint}"


if __name__ == "__main__":
    sys.exit(main())
