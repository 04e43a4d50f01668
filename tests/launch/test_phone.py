"""The launcher of simulated phones: what it prints, and how it ends."""

import contextlib
import pathlib
import signal
import subprocess
import sys

import pytest

from common import ports
from tests.conftest import ADB

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def launch(adb_server, *words):
    process = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "launch" / "phone.py"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=adb_server.environment,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_says_when_it_is_ready(adb_server, serve_phones):
    with serve_phones(2) as phones:  # their ports are free again afterwards
        port = phones.servers[0].port
    with launch(adb_server, "--port", str(port), "--count", "2", "--seed", "5") as process:
        assert process.stdout.readline() == f"ready emulator-{port - 1} emulator-{port + 1}\n"
        assert {f"emulator-{port - 1}", f"emulator-{port + 1}"} <= adb_server.serials()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_soon_and_in_silence(adb_server, number):
    port = ports.phone_port()
    with launch(adb_server, "--port", str(port)) as process:
        assert process.stdout.readline()
        shell = [ADB, "-P", str(adb_server.port), "-s", f"emulator-{port - 1}", "shell"]
        with (
            subprocess.Popen([*shell, "sleep 60"], stdin=subprocess.DEVNULL),
            subprocess.Popen([*shell, "cat"], stdin=subprocess.PIPE),
        ):
            try:
                assert adb_server.adb(f"emulator-{port - 1}", "shell", "true").returncode == 0
                process.send_signal(number)
                assert process.wait(2) == 0
            finally:
                process.kill()  # ends both clients
            assert process.stderr.read() == ""


def test_bad_ports_are_one_sentence_and_exit_code_2(adb_server, phone_server):
    port = phone_server.servers[0].port
    with (
        launch(adb_server, "--port", str(port)) as used,
        launch(adb_server, "--port", str(port + 1)) as even,
    ):
        for process, sentence in (
            (used, f"phone: Port {port} cannot be used (it is in use); choose another one.\n"),
            (even, f"phone: Port {port + 1} will not do: emulators have odd ports, from 1025"),
        ):
            out, err = process.communicate(timeout=10)
            assert (process.returncode, out) == (2, "")
            assert err.startswith(sentence)
            assert len(err.splitlines()) == 1


def test_a_server_port_that_is_none_is_one_sentence(adb_server):
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "launch" / "phone.py")],
        env=adb_server.environment | {"ANDROID_ADB_SERVER_PORT": "x"},
        capture_output=True,
        timeout=10,
    )
    assert (done.returncode, done.stderr) == (
        2,
        b"phone: $ANDROID_ADB_SERVER_PORT must be between 1 and 65535, not x.\n",
    )
