"""Several actors of one command: each in a process of its own, and none ends with another."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import socket
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from actors.device.server import AdbServer
from launch.processes import ProcessDied, Program, State, Supervisor

if TYPE_CHECKING:
    from launch.actor import Args

logger = logging.getLogger(__name__)

RESTARTS = 10
BACKOFF_S = 1.0
_POLL_S = 0.2
_ACTOR = pathlib.Path(__file__).with_name("actor.py")


def run(args: Args, adb_port: int) -> int:
    """Runs an actor for each phone until all have ended; those that fail are started again.

    Returns:
      0 if any of them ended as the learner said, else 1.

    Raises:
      ConfigError: There is no adb server and none can be started.
    """
    AdbServer(port=adb_port).ensure()  # once, here: many at a time would fight for the port
    logs = args.logs or pathlib.Path(tempfile.mkdtemp(prefix="distrl-actors-"))
    logger.info("Logs are in %s.", logs)
    with Supervisor(logs, BACKOFF_S) as supervisor:
        for i, emulator in enumerate(e for e in args.emulator for _ in range(args.copies)):
            one = single(args, emulator, i, logs)
            command = [sys.executable, str(_ACTOR), *words(one)]
            supervisor.start(Program(f"actor-{i}", command, restarts=RESTARTS))
        died = 0
        while any(state is not State.FINISHED for state in supervisor.states().values()):
            try:
                supervisor.check()
            except ProcessDied as error:
                died += 1
                logger.error("The others go on without it: %s", error)
            time.sleep(_POLL_S)
        return int(died == len(supervisor.states()))


def single(args: Args, emulator: str, index: int, logs: pathlib.Path) -> Args:
    """Returns the arguments of one of several actors."""
    metrics = args.metrics
    return dataclasses.replace(
        args,
        emulator=(emulator,),
        copies=1,
        seed=args.seed + index,
        name=f"{args.name or f'{emulator}@{socket.gethostname()}'}-{index}",
        retries=args.retries or logs / "retries",
        metrics=metrics and metrics.with_name(f"{metrics.stem}-{index}{metrics.suffix}"),
    )


def words(args: Args) -> list[str]:
    """Returns the command-line words that give these arguments."""
    found: list[str] = []
    for field in dataclasses.fields(args):
        value: Any = getattr(args, field.name)
        flag = f"--{field.name.replace('_', '-')}"
        if field.name == "emulator":
            found += [f"{flag}={emulator}" for emulator in value]
        elif isinstance(value, tuple):
            found += [flag, *value] if value else []
        elif value is not None and value != field.default:
            found.append(f"{flag}={value}")
    return found
