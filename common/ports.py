"""TCP ports on loopback that are free at the moment."""

from __future__ import annotations

import random
import socket

from common import errors

# Above those that every adb server probes for emulators, and below those that Linux gives to
# outgoing connections, which could take one before its owner listens.
PORTS = range(20_001, 32_768)
TRIES = 100


def free_port(count: int = 1) -> int:
    """Returns the first of `count` consecutive ports that are free."""
    return _search(count, 1)


def phone_port(count: int = 1) -> int:
    """Returns the first of `count` free odd ports, two apart, as emulators have them."""
    return _search(count, 2)


def emulator_port() -> int:
    """Returns an odd port for an emulator's adbd that is free, as is its console's before it."""
    for _ in range(TRIES):
        port = phone_port()
        if is_free(port - 1):
            return port
    raise errors.ConfigError("There are no two free TCP ports for an emulator on 127.0.0.1.")


def _search(count: int, step: int) -> int:
    """Draws at random, so that two searches at the same time find different ports."""
    firsts = range(PORTS.start, PORTS.stop - step * (count - 1), step)
    for first in random.SystemRandom().sample(firsts, TRIES):
        if all(map(is_free, range(first, first + step * count, step))):
            return first
    raise errors.ConfigError(f"There are no {count} free TCP ports in a row on 127.0.0.1.")


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
