"""The data socket in a process of its own, which may fail, and is started again.

A thread that receives beside a busy learner slows both down, and what a hostile peer can do to a
process, it does to this one alone: it has a limit of memory, and begins again from the journal. The
two talk over a pair of sockets in JSON: commands one way, reports the other; episodes go through
the journal. It ends with the learner, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing.connection
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from common import errors
from common.channel import Mode
from common.codec import EpisodeSpec
from common.guard import guarded
from common.keys import LearnerKeys
from learner.ingest import Ingest
from learner.journal import SEGMENT_BYTES, Journal

logger = logging.getLogger(__name__)

Connection = multiprocessing.connection.Connection

MEMORY_BYTES = 2 * 1024**3
RESTARTS = 5  # of one learner's life; each waits twice as long
BACKOFF_S = 0.2
START_S = 60.0
REPORT_S = 1.0
COMMANDS = ("consumed", "retain", "set_pulse", "set_status")
CODE = "from learner.ingest_process import main; main()"


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
        self._deaths = 0
        self._is_closed = False
        self._start_at = 0.0  # 0 while it runs
        self._start()
        try:
            self._await_report()
        except BaseException:
            self.close()
            raise
        self.port = int(self._report["port"])
        self._arguments["address"] = f"{address.rpartition(':')[0]}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; may be called twice."""
        self._is_closed = True
        self._connection.close()  # it ends at the end of what it can read
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def actors(self) -> dict[str, dict[str, Any]]:
        self._read(0.0)
        return self._report["actors"]

    @property
    def counters(self) -> dict[str, int]:
        """Of the present process; "restarts" is how many came before it."""
        self._read(0.0)
        return {**self._report["counters"], "restarts": self._deaths}

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

    def _tell(self, command: str, *arguments: Any) -> None:
        """Sends what is new; what a dead process misses, the next one is told at its start."""
        if self._told.get(command) == list(arguments):
            return
        self._told[command] = list(arguments)
        with contextlib.suppress(OSError):
            self._connection.send_bytes(json.dumps([command, *arguments]).encode())

    def _read(self, timeout_s: float) -> None:
        """Takes reports, waiting that long for the first; notices the process's end."""
        try:
            while self._connection.poll(timeout_s):
                self._take(self._connection.recv_bytes())
                timeout_s = 0.0
        except (EOFError, OSError):
            if not self._is_closed:
                self._revive(timeout_s)

    def _take(self, data: bytes) -> None:
        report = json.loads(data)
        if "error" in report:
            raise errors.ConfigError(report["error"])
        self._report |= report

    def _revive(self, timeout_s: float) -> None:
        """Starts a process that has ended again, after a while, and within the budget."""
        now = time.monotonic()
        if not self._start_at:
            code = self._process.wait()
            self._deaths += 1
            if self._deaths > RESTARTS:
                raise errors.DistRLError(
                    f"The data socket's process ended with exit code {code} after {RESTARTS} "
                    "restarts; its log is above."
                )
            self._start_at = now + BACKOFF_S * 2 ** (self._deaths - 1)
            logger.error("The data socket's process ended with exit code %d.", code)
        if now < self._start_at:
            time.sleep(min(timeout_s, self._start_at - now))
        else:
            self._connection.close()
            self._start()
            told, self._told = self._told, {}
            for command, arguments in told.items():
                self._tell(command, *arguments)

    def _await_report(self) -> None:
        deadline = time.monotonic() + START_S
        while "port" not in self._report:
            if self._process.poll() is not None and not self._connection.poll(0.0):
                raise errors.DistRLError("The data socket's process ended at once; see its log.")
            if time.monotonic() > deadline:
                raise errors.DistRLError("The data socket's process did not start in time.")
            if self._connection.poll(0.2):
                with contextlib.suppress(EOFError):
                    self._take(self._connection.recv_bytes())

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        root = str(pathlib.Path(__file__).resolve().parents[1])
        with theirs:
            self._process = subprocess.Popen(
                guarded([sys.executable, "-c", CODE, str(theirs.fileno())]),
                env=os.environ | {"PYTHONPATH": root},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._start_at = 0.0
        with contextlib.suppress(OSError):  # it has died already: that is noticed by reading
            self._connection.send_bytes(json.dumps(self._arguments).encode())


def main() -> None:
    """Serves until the other end of the socket, whose number is the argument, is closed."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the learner, which still saves
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with Connection(int(sys.argv[1])) as connection:
        arguments = json.loads(connection.recv_bytes())
        try:
            folder = pathlib.Path(arguments["folder"])
            journal = Journal(folder, arguments["segment_bytes"])
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
    end, report_at = -1, 0.0
    while not ended.is_set():
        newest, now = ingest.wait(max(end, 0), 0.1), time.monotonic()
        if now >= report_at:
            report_at = now + REPORT_S
            _send(connection, {"actors": ingest.actors, "counters": ingest.counters})
        if newest != end:
            end = newest
            _send(connection, {"end": end, "port": ingest.port})


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
