"""A process that the learner starts, talks to, and starts again when it dies."""

from __future__ import annotations

import json
import logging
import multiprocessing.connection
import os
import pathlib
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

RESTARTS = 5  # of one learner's life; each waits twice as long
BACKOFF_S = 0.2
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
        self._is_closed = False
        self._start_at = 0.0  # 0 while it runs
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

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
        heard: list[Any] = []
        try:
            while self._connection.poll(0.0 if heard else timeout_s):
                heard.append(json.loads(self._connection.recv_bytes()))
        except (EOFError, OSError):
            if not heard and not self._is_closed:  # its last words come first
                self._revive()
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

    def _revive(self) -> None:
        now = time.monotonic()
        if not self._start_at:
            code = self._process.wait()
            self.deaths += 1
            if self.deaths > RESTARTS:
                raise errors.DistRLError(
                    f"{self._name} ended with exit code {code} after {RESTARTS} restarts; its log "
                    "is above."
                )
            self._start_at = now + BACKOFF_S * 2 ** (self.deaths - 1)
            logger.error("%s ended with exit code %d; starting it again.", self._name, code)
        elif now >= self._start_at:
            self._connection.close()
            self._start()


def parent() -> Connection:
    """Returns, in the child, the connection to the learner, and sets up logging and signals."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the learner, which still saves
        signal.signal(number, signal.SIG_IGN)
    return Connection(int(sys.argv[1]))
