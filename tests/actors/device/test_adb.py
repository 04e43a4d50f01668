"""The adb client against a server that misbehaves."""

import socket
import time

import numpy as np
import pytest

from actors.device import health
from actors.device.adb import AdbDevice, connect
from actors.device.server import AdbServer
from common.errors import ConfigError, DeviceError
from tests.actors.fakes import fake_adb, packet, png, printing

IMAGE = np.random.default_rng(0).integers(0, 256, (64, 32, 3), np.uint8)
PNG = png(IMAGE)


def device(port: int) -> AdbDevice:
    return AdbDevice("fake-1", port=port)


def test_shell_keeps_output_error_and_exit_code_apart():
    def answer(command: str, connection: socket.socket) -> None:
        assert command == "echo 'a b' '$x'"
        connection.sendall(packet(1, b"on") + packet(2, b"err") + packet(1, b"e\n"))
        connection.sendall(packet(3, b"\x07"))

    with fake_adb(answer) as port:
        assert device(port).shell(["echo", "a b", "$x"]) == ("one\n", "err", 7)


def test_a_cut_stream_is_no_success():
    with (
        fake_adb(lambda command, connection: connection.sendall(packet(1, b"half"))) as port,
        pytest.raises(DeviceError, match=r"fake-1: 'ls'.*ended before"),
    ):
        device(port).shell("ls")


def dribble(command: str, connection: socket.socket) -> None:
    """Always has one more byte, so that no single receive times out."""
    for _ in range(100):
        connection.sendall(packet(1, b"."))
        time.sleep(0.02)


def hang(command: str, connection: socket.socket) -> None:
    connection.recv(1)


@pytest.mark.parametrize("answer", [hang, dribble])
def test_the_deadline_is_total(answer):
    with fake_adb(answer) as port:
        start = time.monotonic()
        with pytest.raises(DeviceError, match=r"fake-1: 'sleep 9' took over 0\.2 s"):
            device(port).shell("sleep 9", timeout_s=0.2)
        assert 0.15 < time.monotonic() - start < 1.0


def test_a_refused_transport_names_the_device():
    with fake_adb(hang) as port, pytest.raises(DeviceError, match=r"fake-2: 'ls'.*not found"):
        AdbDevice("fake-2", port=port).shell("ls")


def test_no_server_is_a_device_error():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(DeviceError, match="no adb server"):
        device(port).shell("ls")


@pytest.mark.parametrize(
    "output",
    [
        PNG + b"\n",
        b"[Warning] Multiple displays were found.\n" + PNG,
        PNG.replace(b"\n", b"\r\n"),
    ],
)
def test_a_screenshot_is_the_screen(output):
    with fake_adb(printing(output)) as port:
        frame = device(port).screenshot()
    assert frame.png == PNG
    np.testing.assert_array_equal(frame.image, IMAGE)


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        (b"", 0, "no PNG"),
        (b"Capturing failed.\n", 1, "no PNG.*Capturing failed"),
        (PNG, 1, "code 1"),
        (PNG[: len(PNG) // 2], 0, "cut after"),
        (PNG[:200] + bytes(200) + PNG[400:], 0, "does not decode"),
        (PNG[:200] + PNG[300:], 0, "does not decode"),
    ],
)
def test_half_a_picture_is_never_a_frame(output, code, message):
    with (
        fake_adb(printing(output, code)) as port,
        pytest.raises(DeviceError, match=f"fake-1.*{message}"),
    ):
        device(port).screenshot()


def commands(act, sizes: bytes = b"Physical size: 32x64\n") -> list[str]:
    """What the device is told besides screencap and wm."""
    told: list[str] = []

    def answer(command: str, connection: socket.socket) -> None:
        if command == "wm size":
            printing(sizes)(command, connection)
            return
        if command != "screencap -p":
            told.append(command)
        printing(PNG)(command, connection)

    with fake_adb(answer) as port:
        act(device(port))
    return told


def test_points_become_pixels_of_the_real_frame():
    def act(phone: AdbDevice) -> None:
        phone.tap((0.5, 0.25))
        phone.tap((1.0, 1.0))  # the last pixel, not one beyond
        phone.tap((-3.0, 7.0))
        phone.swipe((0.8, 0.5), (0.2, 0.5), 120)

    assert commands(act) == [
        "input tap 8 32",
        "input tap 31 63",
        "input tap 31 0",
        "input swipe 16 51 16 13 120",
    ]


@pytest.mark.parametrize(
    ("sizes", "tap"),
    [
        (b"Physical size: 64x128\nOverride size: 16x32\n", "input tap 8 16"),
        (b"Physical size: 64x32\n", "input tap 16 32"),  # as a tablet lies; the frame stands
    ],
)
def test_taps_count_in_what_input_counts_in(sizes, tap):
    assert commands(lambda phone: phone.tap((0.5, 0.5)), sizes) == [tap]


def test_a_failed_input_is_a_device_error():
    with fake_adb(printing(b"", 255)) as port, pytest.raises(DeviceError, match="KEYCODE_HOME"):
        device(port).key("HOME")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (b"Error type 3\nError: Activity class {a/b} does not exist.\n", "app"),
        (b"java.lang.NullPointerException: Attempt to get length of null array\n", "command"),
    ],
)
def test_a_command_that_says_that_it_failed_has_failed(error, cause):
    def answer(command: str, connection: socket.socket) -> None:
        connection.sendall(packet(1, b"Starting\n") + packet(2, error) + packet(3, b"\0"))

    with fake_adb(answer) as port, pytest.raises(DeviceError) as caught:
        device(port).must("am start -n a/b")
    assert caught.value.cause == cause


def test_an_unknown_serial_is_answered_with_what_is_there():
    devices = "fake-1\tdevice\nfake-2\toffline\n"
    with fake_adb(hang, devices) as port:
        assert connect("fake-1", port).serial == "fake-1"
        with pytest.raises(ConfigError, match=r"'nope' is not attached.*fake-1 .device., fake-2 "):
            connect("nope", port)
        assert connect("fake-2", port).serial == "fake-2"  # who needs it waits for it
        with pytest.raises(ConfigError, match=r"10\.0\.0\.1:5555.*device not found"):
            connect("10.0.0.1:5555", port)


def test_a_machine_without_adb_is_told_so(monkeypatch):
    monkeypatch.setenv("ADBUTILS_ADB_PATH", "/nowhere/adb")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(ConfigError, match=r"no adb at /nowhere/adb.*ADBUTILS_ADB_PATH"):
        connect("fake-1", port)


def test_a_device_that_never_gets_ready_says_what_is_missing():
    with (
        fake_adb(printing(b"0\n")) as port,
        pytest.raises(DeviceError, match=r"not ready after 0\.1 s: it is still booting"),
    ):
        health.wait_ready(device(port), 0.1, poll_s=0.02)


@pytest.mark.slow
def test_a_port_of_something_else_is_not_fought_for():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"listens at 127\.0\.0\.1:{port} is no adb server"):
            AdbServer(port=port).ensure()
