"""A ROUTER socket with one thread that answers requests; `ingest` and `publish` are its uses."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from typing import Self

import zmq

from common import channel, errors, messages
from common.keys import Door, LearnerKeys
from learner.offenders import PARK_S, Offenders

logger = logging.getLogger(__name__)

STOP_CHECK_MS = 50
MAX_REASON = 300
GROUP_BYTES = 16 * 1024 * 1024  # of received messages, beyond which a group is full

Reply = list[bytes] | Callable[[], list[bytes]]  # a function: it is known after the commit


class Service:
    """Owns a bound socket and the thread that reads it.

    Subclasses answer in `_answer`. They share nothing with their owner but methods under `_lock`,
    so that a service can become a process. Messages that wait together are answered as a group of
    up to `group_size`: `_commit` comes after the last answer and before the first reply.
    """

    group_size = 1

    def __init__(self, address: str, insecure: bool = False, keys: LearnerKeys | None = None):
        """Binds the socket.

        Args:
          address: "tcp://host:port"; port 0 takes a free one, see `port`.
          insecure: Whether a socket without keys may be reached from other hosts.
          keys: What it proves itself with, and whom it lets in.

        Raises:
          ConfigError: The address can't be bound; see `channel.router`.
        """
        self._context = channel.context()
        self._door = Door(self._context, keys) if keys is not None else None
        try:
            self._socket, self.port = channel.router(self._context, address, insecure, keys)
        except errors.ConfigError:
            self._close_context()
            raise
        self._lock = threading.Lock()
        self._counters: collections.Counter[str] = collections.Counter()
        self._offenders = Offenders()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops the thread and frees the port; may be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._close_context()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def counters(self) -> dict[str, int]:
        """How often each thing has happened, refusals by code as "refused/CODE"."""
        with self._lock:
            counters = dict(self._counters)
        if self._door is not None:
            counters["refused/UNKNOWN_KEY"] = self._door.refused
        return counters

    def check(self) -> None:
        """Raises RuntimeError if the thread has died, so that its owner doesn't wait for ever."""
        if self._thread.ident and not self._thread.is_alive() and not self._stopping.is_set():
            raise RuntimeError(f"The thread of {type(self).__name__} has died; see its traceback.")

    def _answer(self, peer: bytes, header: messages.Header, body: bytes) -> Reply:
        """Returns the reply to a message; a WireError becomes a REFUSE."""
        raise NotImplementedError

    def _refused(self, peer: bytes, code: str) -> None:
        """Takes note of a refusal, which is counted already."""

    def _describe(self, peer: bytes, name: str) -> str:
        """Returns how people know a peer."""
        del peer
        return f"the peer {name}"

    def _close_context(self) -> None:
        if self._door is not None:
            self._door.close()
        self._context.term()

    def _commit(self) -> None:
        """Makes last what the replies of a group will promise."""

    def _count(self, name: str, n: int = 1) -> None:
        with self._lock:
            self._counters[name] += n

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._socket.poll(STOP_CHECK_MS, zmq.POLLIN):
                self._answer_group()

    def _answer_group(self) -> None:
        """Answers what waits: commits cost milliseconds, so many share one."""
        group, size = list[tuple[bytes, Reply]](), 0
        while len(group) < self.group_size and size < GROUP_BYTES and self._socket.poll(0):
            received = self._socket.recv_multipart(copy=False)
            peer, count = received[0].bytes, len(received) - 1
            # Many frames may be much memory: they are refused for their number, and not copied.
            frames = [frame.bytes for frame in received[1:]] if count == 2 else [b""] * count
            size += sum(map(len, frames))
            name = peer.hex() if self._door is None else str(received[-1].get("User-Id"))
            if self._offenders.is_parked(name, time.monotonic()):
                self._count("parked")
            else:
                group.append((peer, self._reply(peer, name, frames)))
        self._commit()
        for peer, reply in group:
            if not channel.send(self._socket, [peer, *(reply() if callable(reply) else reply)]):
                self._count("replies_lost")

    def _reply(self, peer: bytes, name: str, frames: list[bytes]) -> Reply:
        self._count("received")
        header = None
        try:
            header, body = messages.unpack(frames)
            return self._answer(peer, header, body)
        except errors.WireError as error:
            self._count(f"refused/{error.code}")
            self._count("refused")
            self._refused(peer, error.code)
            logger.warning("Refused a message of %s. %s", self._describe(peer, name), error)
            if self._offenders.refused(name, error.code, time.monotonic()):
                logger.error(
                    "Nothing of %s is read for %.0f s: it has sent too many such messages.",
                    self._describe(peer, name),
                    PARK_S,
                )
            fields = {"code": error.code, "reason": error.message[:MAX_REASON]}
            return messages.pack(channel.Kind.REFUSE, fields | _episode_id(header))


def _episode_id(header: messages.Header | None) -> dict[str, str | int]:
    """Returns the ids by which a sender knows its episode, if the message has them."""
    try:
        if header is not None:
            return {"boot": header.text("boot", 256), "seq": header.integer("seq")}
    except errors.WireError:
        pass
    return {"boot": "", "seq": -1}
