"""Ports are free, as many as asked for, and nobody else's by custom."""

import contextlib
import socket

import pytest

from common import errors, ports

ADB_PROBES = range(5554, 5586)
EPHEMERAL = 32_768  # Linux gives outgoing connections ports from here on


@pytest.mark.parametrize(("search", "step"), [(ports.free_port, 1), (ports.phone_port, 2)])
def test_as_many_ports_as_asked_for_are_free(search, step):
    first = search(8)
    with contextlib.ExitStack() as stack:
        for port in range(first, first + 8 * step, step):
            stack.enter_context(socket.create_server(("127.0.0.1", port)))


def test_phones_have_odd_ports():
    assert all(ports.phone_port(8) % 2 for _ in range(20))


def test_a_port_in_use_is_not_offered(monkeypatch):
    first = ports.free_port(3)
    monkeypatch.setattr(ports, "PORTS", range(first, first + 3))
    monkeypatch.setattr(ports, "TRIES", 1)
    assert ports.free_port(3) == first
    with (
        socket.create_server(("127.0.0.1", first + 1)),
        pytest.raises(errors.ConfigError, match="no 3 free TCP ports"),
    ):
        ports.free_port(3)


@pytest.mark.parametrize(("search", "step"), [(ports.free_port, 1), (ports.phone_port, 2)])
def test_ports_of_adb_servers_and_outgoing_connections_are_not_offered(search, step):
    firsts = [search(4) for _ in range(100)]
    assert min(firsts) > max(ADB_PROBES)
    assert max(firsts) + 3 * step < EPHEMERAL
