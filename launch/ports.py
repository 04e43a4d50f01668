"""TCP ports on loopback that are free at the moment."""

from __future__ import annotations

import socket

from common import errors

ADB_PORTS = range(5554, 5586)  # where every adb server of the machine looks for emulators
TRIES = 100


def free_port(count: int = 1) -> int:
    """Returns the first of `count` consecutive ports that are free and none of adb's own."""
    return _search(0, count, 1)


def phone_port(count: int) -> int:
    """Returns the first of `count` free odd ports, two apart, as emulators have them."""
    return _search(1, count, 2)


def _search(odd: int, count: int, step: int) -> int:
    for _ in range(TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1] | odd
        candidates = range(first, first + step * count, step)
        if all(map(_is_free, candidates)):
            return first
    raise errors.ConfigError(f"There are no {count} free TCP ports in a row on 127.0.0.1.")


def _is_free(port: int) -> bool:
    if port in ADB_PORTS or port > 65535:
        return False
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
