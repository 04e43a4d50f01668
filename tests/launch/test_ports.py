"""Ports are free, as many as asked for, and none of adb's own."""

import socket

from launch import ports


def test_phone_ports_are_odd_and_free():
    first = ports.phone_port(8)
    assert first % 2 == 1
    sockets = [socket.socket() for _ in range(8)]
    try:
        for i, bound in enumerate(sockets):
            bound.bind(("127.0.0.1", first + 2 * i))
    finally:
        for bound in sockets:
            bound.close()


def test_a_port_in_use_is_not_offered():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert not ports._is_free(taken.getsockname()[1])


def test_the_ports_that_any_adb_server_scans_are_not_offered():
    assert not any(map(ports._is_free, range(5554, 5586)))
