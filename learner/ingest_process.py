"""The data socket in a process of its own, which may fail, and is started again.

A thread that receives beside a busy learner slows both down, and what a hostile peer can do to a
process, it does to this one alone: it has a limit of memory, and begins again from the journal.
Episodes go through the journal; over the pair of sockets come commands one way and reports the
other.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from common import errors
from common.channel import Mode
from common.codec import EpisodeSpec
from common.keys import LearnerKeys
from learner.child import Child, Connection, parent
from learner.ingest import Ingest
from learner.journal import SEGMENT_BYTES, Journal

MEMORY_BYTES = 700 * 1024**2  # beside mapped files; several times what honest actors take
REPORT_S = 1.0
COMMANDS = ("consumed", "retain", "set_pulse", "set_status", "set_task_weights")


class IngestProcess:
    """Starts, watches and asks a process that runs an `Ingest`; has its methods."""

    def __init__(
        self,
        folder: pathlib.Path,
        address: str,
        spec: EpisodeSpec,
        welcome: dict[str, Any],
        body: str,
        position: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        **options: Any,
    ):
        """Starts it and waits until it listens.

        Args:
          folder: Of the journal.
          address: As in `Ingest`, like what follows.
          spec: Sizes of the episodes.
          welcome: For the actors.
          body: The tokenizer.
          position: Records that the learner has read.
          segment_bytes: Of the journal.
          options: Further arguments of `Ingest`, JSON-able; `keys` is the learner's folder of them.

        Raises:
          ConfigError: The address can't be bound, or another process writes the journal.
        """
        self._arguments = {
            "folder": str(folder),
            "address": address,
            "spec": spec._asdict(),
            "welcome": welcome,
            "body": body,
            "position": position,
            "segment_bytes": segment_bytes,
            "options": options,
        }
        self._told: dict[str, list[Any]] = {}  # the newest of each command, for the next start
        self._report: dict[str, Any] = {"end": 0, "actors": {}, "counters": {}}
        self._child = Child(__name__, "The data socket's process", self._first)
        try:
            self.port = self._child.await_port()
        except BaseException:
            self._child.close()
            raise
        self._arguments["address"] = f"{address.rpartition(':')[0]}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; may be called twice."""
        self._child.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def actors(self) -> dict[str, dict[str, Any]]:
        self._read(0.0)
        return self._report["actors"]

    @property
    def counters(self) -> dict[str, int]:
        """Of the present process; "restarts" is how many came before it."""
        self._read(0.0)
        return {**self._report["counters"], "restarts": self._child.deaths}

    def wait(self, position: int, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        self._read(0.0)
        while self._report["end"] <= position and (left_s := deadline - time.monotonic()) > 0:
            self._read(left_s)
        return int(self._report["end"])

    def consumed(self, position: int) -> None:
        self._arguments["position"] = position
        self._tell("consumed", position)

    def retain(self, live: np.ndarray, upto: int) -> None:
        self._tell("retain", live.tolist(), upto)

    def set_pulse(self, lineage: int, version: int, mode: Mode | str) -> None:
        self._tell("set_pulse", lineage, version, Mode(mode).value)

    def set_status(self, status: dict[str, Any]) -> None:
        self._tell("set_status", json.loads(json.dumps(status, default=float)))

    def set_task_weights(self, weights: np.ndarray | None) -> None:
        self._tell("set_task_weights", None if weights is None else weights.tolist())

    def _tell(self, command: str, *arguments: Any) -> None:
        """Sends what is new; what a dead process misses, the next one is told at its start."""
        if self._told.get(command) != list(arguments):
            self._told[command] = list(arguments)
            self._child.tell([command, *arguments])

    def _first(self) -> list[Any]:
        return [self._arguments, *([command, *told] for command, told in self._told.items())]

    def _read(self, timeout_s: float) -> None:
        """Takes reports, waiting that long for the first."""
        for report in self._child.hear(timeout_s):
            if "error" in report:
                raise errors.ConfigError(report["error"])
            self._report |= report


def main() -> None:
    """Serves until the learner is gone."""
    with parent(MEMORY_BYTES) as connection:
        arguments = json.loads(connection.recv_bytes())
        try:
            folder = pathlib.Path(arguments["folder"])
            journal = Journal(folder, arguments["segment_bytes"], arguments["position"])
            with journal, _ingest(arguments, journal) as ingest:
                _serve(ingest, connection)
        except errors.ConfigError as error:
            _send(connection, {"error": str(error)})


def _ingest(arguments: dict[str, Any], journal: Journal) -> Ingest:
    options = arguments["options"]
    keys = options.pop("keys", None)
    return Ingest(
        arguments["address"],
        EpisodeSpec(**arguments["spec"]),
        arguments["welcome"],
        journal,
        arguments["body"].encode(),
        arguments["position"],
        **options,
        keys=LearnerKeys.load(pathlib.Path(keys)) if keys else None,
    )


def _serve(ingest: Ingest, connection: Connection) -> None:
    """Reports each commit, and each second what else there is to know."""
    ingest.start()
    ended = threading.Event()
    # On a thread of its own, so that neither side waits for the other to read.
    threading.Thread(target=_obey, args=(ingest, connection, ended), daemon=True).start()
    _send(connection, {"port": ingest.port, "end": ingest.wait(0, 0.0)})
    end, report_at = -1, 0.0
    while not ended.is_set():
        newest, now = ingest.wait(max(end, 0), 0.1), time.monotonic()
        if now >= report_at:
            report_at = now + REPORT_S
            _send(connection, {"actors": ingest.actors, "counters": ingest.counters})
        if newest != end:
            end = newest
            _send(connection, {"end": end})


def _obey(ingest: Ingest, connection: Connection, ended: threading.Event) -> None:
    commands: dict[str, Callable[..., None]] = {name: getattr(ingest, name) for name in COMMANDS}
    while not ended.is_set():
        try:
            name, *arguments = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            ended.set()
        else:
            commands[name](*arguments)


def _send(connection: Connection, report: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the learner is gone, which its reader notices
        connection.send_bytes(json.dumps(report).encode())
