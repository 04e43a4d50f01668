"""Why a connection comes to nothing, in words: ZeroMQ tries again in silence."""

from __future__ import annotations

import socket
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from common import errors
from common.keys import ActorKeys

FAILURES, FAILING_S = 3, 2.5  # that many, and for so long
ASK_S = 0.5

# How ZMTP 3.1 begins (rfc.zeromq.org/spec/37): signature and version; then comes the mechanism.
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"
_MECHANISM = slice(12, 32)


class Handshakes:
    """Says in words why a DEALER's connections come to nothing.

    A wrong key looks as a network does that hangs up. A proxy may accept connections while its
    learner is away, so the other end is asked whether it speaks ZeroMQ at all; and once there was a
    connection, only time tells.
    """

    def __init__(self, socket: zmq.Socket, address: str, keys: ActorKeys | None):
        """Takes a socket that nobody else monitors."""
        self._socket, self._address, self._keys = socket, address, keys
        self._monitor = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED
            | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        )
        self._failures = 0  # while there was no connection yet
        self._failed_at = 0.0  # for the first time
        self._connected = False

    def check(self) -> None:
        """Raises ConfigError after a refusal, or if for a while there were only failures."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise errors.ConfigError(
                    f"The learner at {self._address} doesn't know this actor's key. Put its .key "
                    "file into allowed/ of the learner's keys, or make one with launch/keys.py."
                )
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected, self._failures = True, 0
            elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:  # ZeroMQ will not connect again
                raise self._reason(mechanism(self._address))
            elif not self._connected:  # the other end hung up
                self._failed_at = self._failed_at if self._failures else time.monotonic()
                self._failures += 1
        failing_s = time.monotonic() - self._failed_at
        if self._failures >= FAILURES and failing_s >= FAILING_S:
            self._failures = 0
            if found := mechanism(self._address):
                raise self._reason(found)

    def close(self) -> None:
        """Comes before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(0)

    def _reason(self, found: str) -> errors.ConfigError:
        if self._keys is None:
            what = "it uses keys: give --keys, the folder that launch/keys.py made for this actor"
        elif found == "NULL":
            what = "it was started without --keys, and this actor with them"
        else:
            what = "its key is not the one in learner.key"
        return errors.ConfigError(
            f"The learner at {self._address} does not talk to this actor: {what}."
        )


def mechanism(address: str) -> str:
    """Returns what whoever listens there wants for a handshake: "NULL" (no keys) or "CURVE".

    "" if nobody answers as ZeroMQ does.
    """
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    greeting = b""
    try:
        with socket.create_connection((host, int(port)), ASK_S) as connection:
            connection.sendall(_GREETING)  # no mechanism: at another one it would hang up
            while len(greeting) < _MECHANISM.stop and (more := connection.recv(64)):
                greeting += more
    except OSError:
        return ""
    name = greeting[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")
    return name if greeting.startswith(b"\xff") else ""
