"""What both ends of a channel share: the types of messages, socket options and addresses.

An actor has one DEALER to the learner's ROUTER for data and one for parameters. Routing ids are the
ones that ZeroMQ makes up, so a restarted actor is simply a new peer. A plain TCP socket is bound to
loopback only, unless the caller says that it is meant to be insecure.
"""

from __future__ import annotations

import enum
import errno
import ipaddress
import json
import re
import time
from typing import Any, NamedTuple

import numpy as np
import zmq

from common import errors, messages
from common.types import Version

PING_EVERY_S = 5  # ZMTP heartbeats find dead connections ...
PING_TIMEOUT_S = 15
HEARTBEAT_S = 2.0  # ... and these, from the working loop, find hung actors
LINGER_MS = 500  # long enough for a last reply; never -1, which hangs on a dead peer
QUEUED_MESSAGES = 32  # per pipe; acknowledgements bound what is under way, not this
OLDEST_LIBZMQ = (4, 3, 2)  # before: memory corruption ahead of any authentication


class Kind(enum.StrEnum):
    """Types of messages; `->` separates a request from its replies."""

    # Data channel. REFUSE is final, RETRY_AFTER is not.
    HELLO = "HELLO"  # -> WELCOME | REFUSE
    WELCOME = "WELCOME"
    EPISODE = "EPISODE"  # -> ACK | REFUSE | RETRY_AFTER | UNKNOWN_PEER
    ACK = "ACK"
    REFUSE = "REFUSE"
    RETRY_AFTER = "RETRY_AFTER"
    UNKNOWN_PEER = "UNKNOWN_PEER"  # say HELLO (again) first
    HEARTBEAT = "HEARTBEAT"  # -> PULSE | UNKNOWN_PEER
    PULSE = "PULSE"
    STATUS = "STATUS"  # -> STATUS_REPLY
    STATUS_REPLY = "STATUS_REPLY"
    # Parameter channel.
    GET_MANIFEST = "GET_MANIFEST"  # -> MANIFEST | UNCHANGED
    MANIFEST = "MANIFEST"
    UNCHANGED = "UNCHANGED"
    GET_CHUNK = "GET_CHUNK"  # -> CHUNK | GONE
    CHUNK = "CHUNK"
    GONE = "GONE"


class Mode(enum.StrEnum):
    """What the learner wants its actors to do."""

    WAIT = "wait"
    DEMONSTRATE = "demonstrate"
    EXPLORE = "explore"
    STOP = "stop"


class Pulse(NamedTuple):
    """The learner's state, as it travels in WELCOME and PULSE."""

    run: str
    life: str  # one start of the learner's data socket
    version: Version  # the newest parameters; step -1 before the first
    mode: Mode
    config_id: str  # identifies the settings of WELCOME

    def to_fields(self) -> dict[str, Any]:
        lineage, step = self.version
        return {
            "run": self.run,
            "life": self.life,
            "lineage": lineage,
            "version": step,
            "mode": self.mode.value,
            "config_id": self.config_id,
        }

    @classmethod
    def from_header(cls, header: messages.Header) -> Pulse:
        mode = header.text("mode", 32)
        if mode not in tuple(Mode):
            raise errors.WireError("BAD_VALUE", f"mode is {mode!r}, not in {tuple(Mode)}.")
        return cls(
            run=header.text("run", 256),
            life=header.text("life", 64),
            version=Version(header.integer("lineage"), header.integer("version", low=-1)),
            mode=Mode(mode),
            config_id=header.text("config_id", 64),
        )


def pack_weights(weights: np.ndarray | None) -> bytes:
    """Returns the body of a PULSE: how often each task is to be played, [tasks]; empty for None."""
    return b"" if weights is None else weights.astype("<f4").tobytes()


def unpack_weights(body: bytes) -> np.ndarray | None:
    """Returns float32 [tasks], or None if actors may choose; WireError if these are no weights."""
    if not body:
        return None
    if len(body) % 4:
        raise errors.WireError("BAD_SCHEMA", "The tasks' weights are no float32.")
    weights = np.frombuffer(body, "<f4")
    if not (np.isfinite(weights).all() and weights.min() >= 0 and 0 < weights.sum() < np.inf):
        raise errors.WireError("BAD_VALUE", "The tasks' weights are no weights.")
    return weights


def context() -> zmq.Context:
    """Returns a context of its own for each owner: it must not be carried over a fork."""
    if zmq.zmq_version_info() < OLDEST_LIBZMQ:
        oldest = ".".join(map(str, OLDEST_LIBZMQ))
        raise errors.ConfigError(
            f"libzmq {zmq.zmq_version()} is too old; install pyzmq with {oldest} or newer."
        )
    return zmq.Context()


def router(owner: zmq.Context, address: str, insecure: bool = False) -> tuple[zmq.Socket, int]:
    """Binds a ROUTER and returns it with its port; port 0 takes a free one.

    Raises:
      ConfigError: The address is malformed, in use, or not loopback.
    """
    host, port = split_address(address, lowest_port=0)
    if not insecure and not _is_loopback(host):
        raise errors.ConfigError(
            f"{address} can be reached from other machines and is not encrypted: bind 127.0.0.1, "
            "or pass --insecure in a network where everyone is trusted."
        )
    socket = owner.socket(zmq.ROUTER)
    _configure(socket)
    # Without it a reply to a peer that is gone, or whose pipe is full, vanishes in silence.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, messages.MAX_BODY_BYTES + 1)
    try:
        socket.bind(f"tcp://{host}:{port or '*'}")
    except zmq.ZMQError as error:
        socket.close(0)
        if error.errno == errno.EADDRINUSE:
            reason = "the port is in use; choose another or stop the process that has it"
        else:
            reason = str(error)
        raise errors.ConfigError(f"Can't listen on {address}: {reason}.") from error
    return socket, int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])


def dealer(owner: zmq.Context, address: str) -> zmq.Socket:
    """Returns a DEALER that connects, and reconnects, in the background.

    While there is no connection, sends fail with `zmq.Again` instead of piling up stale messages.

    Raises:
      ConfigError: The address is malformed.
    """
    split_address(address)
    socket = owner.socket(zmq.DEALER)
    _configure(socket)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 100)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        socket.close(0)
        raise errors.ConfigError(f"Can't connect to {address}: {error}.") from error
    return socket


def split_address(address: str, lowest_port: int = 1) -> tuple[str, int]:
    """Returns host and port of "tcp://host:port"; raises ConfigError if it is none."""
    match = re.fullmatch(r"tcp://([A-Za-z0-9._-]+|\*):(\d{1,5})", address)
    if not match or not lowest_port <= int(match[2]) <= 65535:
        raise errors.ConfigError(
            f"{address!r} is not an address of the form tcp://host:port, as in tcp://127.0.0.1:7000."
        )
    return match[1], int(match[2])


def ask_status(address: str, timeout_s: float) -> dict[str, Any] | None:
    """Returns the learner's status for a dashboard, or None if it doesn't answer in time."""
    owner = context()
    socket = dealer(owner, address)
    deadline = time.monotonic() + timeout_s
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            if not send(socket, messages.pack(Kind.STATUS, {})):
                time.sleep(min(0.05, left_s))
            elif socket.poll(int(left_s * 1000)):
                header, body = messages.unpack(socket.recv_multipart())
                return json.loads(body) if header.type == Kind.STATUS_REPLY else None
        return None
    finally:
        socket.close(0)
        owner.term()


def send(socket: zmq.Socket, frames: list[bytes]) -> bool:
    """Sends without waiting; False if the peer is gone or its pipe is full."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.ZMQError as error:
        if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            return False
        raise
    return True


def _configure(socket: zmq.Socket) -> None:
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, QUEUED_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, QUEUED_MESSAGES)
    socket.setsockopt(zmq.HEARTBEAT_IVL, PING_EVERY_S * 1000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, PING_TIMEOUT_S * 1000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, PING_TIMEOUT_S * 1000)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
