"""The actor's launcher: what it answers to bad input, and how it ends."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from launch import actor
from tests.conftest import wait_for

ROOT = pathlib.Path(__file__).parents[2]


def started(*words: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "launch" / "actor.py"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture
def silence():
    """The address of a learner that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--emulator=nope"], "The device 'nope' is not attached."),
        (["--emulator=nope", "--adb-port=0"], "--adb-port must be between 1 and 65535, not 0."),
        (["--emulator=nope", "--connect-timeout-s=0"], "--connect-timeout-s must be above 0"),
        (["--emulator=nope", "--seed=-1"], "--seed must be in 0..2147483647, not -1."),
        (["--emulator=nope", "--spool-mb=0"], "--spool-mb must be 1 or more, not 0."),
        (["--emulator=nope", "--settle-s=-1"], "--settle-s must be in 0..60, not -1.0."),
        (["--emulator=nope", "--grace-s=-1"], "--grace-s must be in 0..3600, not -1.0."),
        (["--emulator=nope", "--vision-folder=/nowhere"], "--vision-folder /nowhere is not a"),
        (["--emulator=nope", "--judge=gemini"], "set GEMINI_API_KEY"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(adb_server, words, sentence, monkeypatch, capsys):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setattr(actor.one_thread, "configure", lambda: None)
    monkeypatch.setattr(actor, "_exit_on_signals", lambda grace_s: None)
    assert actor.main([f"--adb-port={adb_server.port}", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("actor: ") and sentence in said


def test_a_silent_learner_is_waited_for_and_given_up(adb_server, phone_server, silence):
    process = started(
        f"--emulator={phone_server.serial}",
        f"--adb-port={adb_server.port}",
        f"--learner={silence}",
        "--connect-timeout-s=0.5",
    )
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "actor: No learner answered" in said and "Traceback" not in said


DRAINING = """
import sys, time
from launch import actor
actor._exit_on_signals(float(sys.argv[1]))
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    print("draining", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("grace_s", "signals"), [(0.3, 1), (30, 2)])
def test_draining_ends_with_the_grace_or_a_second_signal(grace_s, signals):
    with subprocess.Popen(
        [sys.executable, "-c", DRAINING, str(grace_s)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        for word in ("ready", "draining")[:signals]:
            assert process.stdout.readline().strip() == word
            process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_own_phone_ends_with_it(adb_server, silence, number):
    before = adb_server.serials()
    process = started("--emulator=phone", f"--adb-port={adb_server.port}", f"--learner={silence}")
    try:
        wait_for(lambda: adb_server.serials() - before or process.poll(), "its phone", 30)
        (serial,) = adb_server.serials() - before
        time.sleep(0.3)  # it may be anywhere now: importing, connecting, waiting
        start = time.monotonic()
        os.kill(process.pid, number)
        process.communicate(timeout=10)
        assert time.monotonic() - start < 2.5
        wait_for(lambda: serial not in adb_server.serials(), f"{serial} to go", 5)
    finally:
        process.kill()
        process.communicate()
    expected = 128 + number if number == signal.SIGTERM else -number
    assert process.returncode == expected
