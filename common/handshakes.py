"""Why a connection comes to nothing, in words: ZeroMQ tries again in silence."""

from __future__ import annotations

import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from common import errors
from common.keys import ActorKeys

FAILURES, FAILING_S = 3, 2.5  # that many, and for so long


class Handshakes:
    """Says in words why a DEALER's connections come to nothing; ZeroMQ tries again in silence.

    A wrong key looks as a network does that hangs up, so once there was a connection, only time
    tells: a proxy may accept connections while its learner is away.
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
                raise self._nothing()
            elif not self._connected:  # the other end hung up
                self._failed_at = self._failed_at or time.monotonic()
                self._failures += 1
        failing_s = time.monotonic() - self._failed_at
        if self._failures >= FAILURES and failing_s >= FAILING_S:
            raise self._nothing()

    def _nothing(self) -> errors.ConfigError:
        what = (
            "it uses keys: give --keys with the folder that launch/keys.py made for this actor"
            if self._keys is None
            else "its key is not the one in learner.key, or it was started without --keys"
        )
        return errors.ConfigError(
            f"Nothing comes of the connections to {self._address}. Either no learner listens "
            f"there, or {what}."
        )

    def close(self) -> None:
        """Comes before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(0)
