"""Child processes: started in their own session, watched, restarted within a budget, and ended.

A child dies with the launcher however the launcher dies (`common/guard.py`). That tie is to the
thread that started it, so only the main thread starts processes.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from common import errors
from common.guard import guarded

logger = logging.getLogger(__name__)

GRACE_S = 5.0  # from SIGTERM to SIGKILL
SERVICE_GRACE_S = 2.0  # services have nothing to save; both together stay under 10 s
USAGE_EXIT_CODE = 2  # a launcher's answer to unusable flags: another start would say the same
TAIL_LINES = 20
TAIL_BYTES = 16384


class ProcessDied(errors.DistRLError):
    """A process ended that should not have, and its budget of restarts is spent."""


@dataclasses.dataclass(frozen=True)
class Program:
    """What to run.

    Attributes:
      name: Names its log file, and it in messages.
      command: Arguments, the executable first.
      environment: Variables on top of the launcher's own.
      restarts: How many deaths are answered with another start.
      service: The others need it: it never finishes by itself, and it is ended last.
      nice: By how much it gives way to the others where cores are short, 0 to 19.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    restarts: int = 0
    service: bool = False
    nice: int = 0


class State(enum.StrEnum):
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"  # exit code 0 of a program that is no service


@dataclasses.dataclass
class _Child:
    program: Program
    process: subprocess.Popen[bytes]
    state: State = State.RUNNING
    deaths: int = 0
    start_at: float = 0.0  # when it is restarted, by time.monotonic


class Supervisor:
    """Owns a set of child processes; leaving it ends them all.

    The owner calls `check` a few times a second.

    Args:
      log_folder: Gets one NAME.log for each program; its stdout and stderr, restarts appended.
      backoff_s: Wait before the first restart of a program; doubles with each.
    """

    def __init__(self, log_folder: pathlib.Path, backoff_s: float = 1.0):
        self._log_folder = log_folder
        self._backoff_s = backoff_s
        self._children: dict[str, _Child] = {}
        log_folder.mkdir(parents=True, exist_ok=True)

    def start(self, program: Program) -> None:
        """Starts a program under a name that is not in use."""
        if program.name in self._children:
            raise ValueError(f"{program.name} was started before")
        self._children[program.name] = _Child(program, self._spawn(program))

    def check(self) -> None:
        """Notices what ended and starts again what may.

        Raises:
          ProcessDied: A program is beyond its restarts; the message ends with its last log lines.
        """
        for child in self._children.values():
            if child.state is State.RUNNING and _exited(child.process):
                self._ended(child)
            elif child.state is State.RESTARTING and time.monotonic() >= child.start_at:
                child.process = self._spawn(child.program)
                child.state = State.RUNNING

    def state(self, name: str) -> State:
        return self._children[name].state

    def states(self) -> dict[str, State]:
        return {name: child.state for name, child in self._children.items()}

    def pid(self, name: str) -> int:
        return self._children[name].process.pid

    def log_path(self, name: str) -> pathlib.Path:
        return self._log_folder / f"{name}.log"

    def stop(self, names: Iterable[str], grace_s: float = GRACE_S) -> None:
        """Ends programs and forgets them: SIGTERM, a wait, SIGKILL to their process groups."""
        children = [self._children[name] for name in names]
        running = [child.process for child in children if child.state is State.RUNNING]
        try:
            for process in running:
                process.terminate()
            deadline = time.monotonic() + grace_s
            while time.monotonic() < deadline and not all(map(_exited, running)):
                time.sleep(0.02)
        finally:  # a second Ctrl-C skips the wait
            for process in running:
                _bury(process)
        for child in children:
            del self._children[child.program.name]

    def close(self) -> None:
        """Ends everything; the services only when nobody is left who would miss them."""
        try:
            self.stop([n for n, child in self._children.items() if not child.program.service])
        finally:
            self.stop(list(self._children), SERVICE_GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a child dies with the thread that starts it: use the main thread")
        with self.log_path(program.name).open("ab") as log:
            process = subprocess.Popen(
                guarded(program.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **program.environment},
                start_new_session=True,
            )
        if program.nice:
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PGRP, process.pid, min(own + program.nice, 19))
        return process

    def _ended(self, child: _Child) -> None:
        program, code = child.program, _bury(child.process)
        if code == 0 and not program.service:
            child.state = State.FINISHED
            return
        child.deaths += 1
        if code == USAGE_EXIT_CODE or child.deaths > program.restarts:
            child.state = State.FINISHED
            raise ProcessDied(
                f"{program.name} {_ending(code)} after {child.deaths - 1} restarts; "
                f"its log ends with:\n{tail(self.log_path(program.name))}"
            )
        delay_s = self._backoff_s * 2 ** (child.deaths - 1)
        child.state, child.start_at = State.RESTARTING, time.monotonic() + delay_s
        logger.warning(
            "%s %s; restart %d of %d in %.0f s.",
            program.name,
            _ending(code),
            child.deaths,
            program.restarts,
            delay_s,
        )


def tail(path: pathlib.Path, lines: int = TAIL_LINES) -> str:
    """Returns the last lines of a text file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def _exited(process: subprocess.Popen[bytes]) -> bool:
    """Says whether a child has ended, without reaping it: its id stays taken until `_bury`."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return process.returncode is not None or os.waitid(os.P_PID, process.pid, flags) is not None


def _bury(process: subprocess.Popen[bytes]) -> int:
    """Kills what is left of a child's process group and returns its exit code."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait(timeout=10)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}"
