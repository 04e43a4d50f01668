"""A process that the learner starts, talks to, and starts again when it dies."""

from __future__ import annotations

import json
import logging
import multiprocessing.connection
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from common import errors
from common.guard import guarded

logger = logging.getLogger(__name__)

Connection = multiprocessing.connection.Connection

RESTARTS, WINDOW_S = 5, 600.0  # so many within such a time; each waits twice as long
BACKOFF_S = 0.2
START_S = 60.0
SEND_S = 5.0
CLOSE_S = 5.0
ROOT = pathlib.Path(__file__).resolve().parents[1]


class Child:
    """Speaks JSON with a process over a pair of sockets.

    It ends with the learner, however that ends. One that doesn't read what it is told is killed.

    Attributes:
      deaths: How often it died.
    """

    def __init__(self, module: str, name: str, first: Callable[[], list[Any]]):
        """Starts it.

        Args:
          module: Its `main` is called; `parent` connects it to this process.
          name: Of the process, in messages.
          first: Returns what a process is told at its start, also at each later one.
        """
        self._module, self._name, self._first = module, name, first
        self.deaths = 0
        self._died_at: list[float] = []  # not long ago
        self._unheard: list[Any] = []
        self._is_closed = False
        self._start_at = 0.0  # 0 while it runs
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_port(self) -> int:
        """Returns the "port" that it says to listen on; comes before `hear`.

        Raises:
          ConfigError: It says an "error" instead.
          DistRLError: It says nothing, or dies again and again.
        """
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for said in (heard := self.hear(timeout_s=0.2)):
                if "error" in said:
                    raise errors.ConfigError(said["error"])
                if "port" in said:
                    self._unheard = heard
                    return int(said["port"])
        raise errors.DistRLError(f"{self._name} did not start within {START_S:.0f} s.")

    def tell(self, message: Any) -> None:
        """Sends a message; a process that is dead is told by `first` when it is back."""
        try:
            self._connection.send_bytes(json.dumps(message).encode())
        except BlockingIOError:
            logger.error("%s does not listen.", self._name)
            self._process.kill()
        except OSError:
            pass  # it has died, which `hear` notices

    def hear(self, timeout_s: float = 0.0) -> list[Any]:
        """Returns what it said, waiting that long for the first word; starts it again if it died.

        Raises:
          DistRLError: It died once too often.
        """
        heard, self._unheard = self._unheard, []
        try:
            while self._connection.poll(0.0 if heard else timeout_s):
                heard.append(json.loads(self._connection.recv_bytes()))
        except (EOFError, OSError):
            if not heard and not self._is_closed:  # its last words come first
                self._revive(timeout_s)
        return heard

    def close(self) -> None:
        """Ends it; may be called twice."""
        self._is_closed = True
        self._connection.close()  # it ends at the end of what it can read
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        timeout = struct.pack("@ll", int(SEND_S), 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        code = f"from {self._module} import main; main()"
        with theirs:
            self._process = subprocess.Popen(
                guarded([sys.executable, "-c", code, str(theirs.fileno())]),
                env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._start_at = 0.0
        for message in self._first():
            self.tell(message)

    def _revive(self, timeout_s: float) -> None:
        """Starts it again, after a while, and within the budget."""
        now = time.monotonic()
        if not self._start_at:
            code = self._process.wait()
            self.deaths += 1
            self._died_at = [at for at in self._died_at if now - at < WINDOW_S] + [now]
            if len(self._died_at) > RESTARTS:
                raise errors.DistRLError(
                    f"{self._name} ended with exit code {code} after {RESTARTS} restarts in "
                    f"{WINDOW_S:.0f} s; its log is above."
                )
            self._start_at = now + BACKOFF_S * 2 ** (len(self._died_at) - 1)
            logger.error("%s ended with exit code %d; starting it again.", self._name, code)
        if now < self._start_at:
            time.sleep(min(timeout_s, self._start_at - now))
        else:
            self._connection.close()
            self._start()


def parent(memory_bytes: int) -> Connection:
    """Returns, in the child, the connection to the learner.

    Sets up logging and signals, and limits what the process may use beside mapped files.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the learner, which still saves
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    return Connection(int(sys.argv[1]))
