"""CURVE keys: who may talk to a learner, and how both ends prove who they are.

`launch/keys.py` makes a folder for the learner and one for each actor, or host of actors:

    learner/learner.key_secret      stays with the learner
    learner/allowed/NAME.key        the allow-list; a key that is removed opens no new connection
    NAME/actor.key_secret           is carried to that actor, with
    NAME/learner.key                what it knows the learner by

Files are in the form of ZeroMQ's certificates; those with secrets can be read by their owner alone.
"""

from __future__ import annotations

import logging
import os
import pathlib
import stat
from typing import NamedTuple, Self

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from common import errors

logger = logging.getLogger(__name__)

DOMAIN = "distrl"  # of ZAP: without one, libzmq lets every client pass
SECRET, PUBLIC = ".key_secret", ".key"


class ActorKeys(NamedTuple):
    """What an actor, or whoever asks for the status, connects with."""

    public: bytes
    secret: bytes
    learner: bytes  # the learner's public key

    @classmethod
    def load(cls, folder: pathlib.Path) -> Self:
        """Reads an actor's folder; ConfigError if it is none."""
        public, secret = _load_secret(folder / f"actor{SECRET}")
        return cls(public, secret, _load(folder / f"learner{PUBLIC}")[0])

    def apply(self, socket: zmq.Socket) -> None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.learner)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)


class LearnerKeys(NamedTuple):
    """What a learner's sockets prove themselves with, and the folder of the keys they accept."""

    secret: bytes
    allowed: pathlib.Path

    @classmethod
    def load(cls, folder: pathlib.Path) -> Self:
        """Reads the learner's folder; ConfigError if it is none."""
        _, secret = _load_secret(folder / f"learner{SECRET}")
        allowed = folder / "allowed"
        if not allowed.is_dir():
            raise errors.ConfigError(f"{allowed} is missing: it holds the keys of the actors.")
        read_allowed(allowed)
        return cls(secret, allowed)

    def apply(self, socket: zmq.Socket) -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())


class Door:
    """Answers for a context's sockets whether a client's key is on the allow-list.

    Attributes:
      refused: How many handshakes were refused.
    """

    def __init__(self, owner: zmq.Context, keys: LearnerKeys):
        """Opens before the sockets are bound; `close` comes before the context ends."""
        self.refused = 0
        self._folder = keys.allowed
        self._read_at = -1  # the folder's time of change
        self._names: dict[bytes, str] = {}
        self._authenticator = ThreadAuthenticator(owner)
        self._authenticator.configure_curve_callback(DOMAIN, self)
        self._authenticator.start()

    def close(self) -> None:
        self._authenticator.stop()

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by the authenticator's thread at each handshake."""
        del domain
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._read_at:
                self._names, self._read_at = read_allowed(self._folder), changed
        except (OSError, errors.ConfigError) as error:
            logger.error("The allow-list can't be read; it stays as it was. %s", error)
        if key in self._names:
            return True
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:  # 1, 2, 4, 8, ...: a flood must not fill a disk
            logger.warning("Refused %d connections; the newest has key %s.", self.refused, key)
        return False


def read_allowed(folder: pathlib.Path) -> dict[bytes, str]:
    """Returns the names of the allowed by their public keys; ConfigError for a broken file."""
    return {_load(path)[0]: path.stem for path in sorted(folder.glob(f"*{PUBLIC}"))}


def create(folder: pathlib.Path, names: list[str]) -> None:
    """Makes the learner's keys, if there are none yet, and those of actors.

    Raises:
      ConfigError: A name is taken or unusable, or the folder can't be written.
    """
    learner = folder / "learner"
    for name in names:
        if name == "learner" or not name.replace("-", "").replace("_", "").isalnum():
            raise errors.ConfigError(
                f"{name!r} can't name an actor: use letters, digits, - and _, and not 'learner'."
            )
        if (folder / name).exists():
            raise errors.ConfigError(
                f"{folder / name} is there already; remove it, and "
                f"{learner / 'allowed' / name}{PUBLIC}, to make new keys under that name."
            )
    try:
        if not learner.exists():
            (learner / "allowed").mkdir(mode=0o700, parents=True)
            _write(learner / f"learner{SECRET}", *zmq.curve_keypair())
        learner_key, _ = _load_secret(learner / f"learner{SECRET}")
        for name in names:
            (folder / name).mkdir(mode=0o700)
            public, secret = zmq.curve_keypair()
            _write(folder / name / f"actor{SECRET}", public, secret)
            _write(folder / name / f"learner{PUBLIC}", learner_key)
            _write(learner / "allowed" / f"{name}{PUBLIC}", public)
    except OSError as error:
        raise errors.ConfigError(f"Can't write keys to {folder}: {error}.") from error


def _write(path: pathlib.Path, public: bytes, secret: bytes | None = None) -> None:
    lines = ["metadata", "curve", f'    public-key = "{public.decode()}"']
    if secret is not None:
        lines.append(f'    secret-key = "{secret.decode()}"')
    mode = 0o644 if secret is None else 0o600
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def _load(path: pathlib.Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise errors.ConfigError(
            f"{path} is no key: {error}. python launch/keys.py makes them."
        ) from error
    if any(len(key) != 40 for key in (public, secret) if key is not None):
        raise errors.ConfigError(f"{path} is no key: it has not 40 characters.")
    return public, secret


def _load_secret(path: pathlib.Path) -> tuple[bytes, bytes]:
    public, secret = _load(path)
    if secret is None:
        raise errors.ConfigError(f"{path} holds no secret key.")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise errors.ConfigError(f"Others can read the secret {path}: chmod 600 it.")
    return public, secret
