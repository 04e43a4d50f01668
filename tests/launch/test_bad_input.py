"""Bad input that several launchers may get: each says what to do and exits with code 2."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

from common import ports

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
TASKS = """
tasks:
  - id: wifi-off
    goal: turn off wifi
    cheks:
      - {shell: settings get global wifi_on, matches: ^0$}
"""


@pytest.fixture
def refused(tmp_path):
    """Runs launchers side by side, for each imports for a while; returns what each said."""

    def refused(*commands: list[object], **environment: str) -> list[str]:
        running = [
            subprocess.Popen(
                [sys.executable, str(LAUNCH / f"{name}.py"), *map(str, words)],
                cwd=tmp_path,
                env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name, *words in commands
        ]
        said = []
        for process, (name, *_) in zip(running, commands, strict=True):
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 2, errors
            assert "Traceback" not in errors
            assert errors.splitlines()[-1].startswith(f"{name}: ")  # the learner logs before it
            said.append(errors)
        return said

    return refused


def test_a_machine_without_adb(refused):
    port = ports.free_port()
    said = refused(
        ["actor", "--emulator=emulator-6554", "--adb-port", port],
        ["phone", "--port", ports.phone_port(), "--adb-port", port],
        ["local", "--workdir=run"],
        ADBUTILS_ADB_PATH="/nowhere/adb",
    )
    for line in said:
        assert "There is no adb at /nowhere/adb; correct or unset $ADBUTILS_ADB_PATH." in line


def test_a_port_that_something_else_has(refused):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = refused(
            ["actor", "--emulator=emulator-6554", "--adb-port", port],
            ["phone", "--port", ports.phone_port(), "--adb-port", port],
        )
    for line in said:
        assert f"What listens at 127.0.0.1:{port} is no adb server" in line


def test_a_learner_s_address_that_is_none(refused, adb_server, phone_server):
    actor = ["actor", f"--emulator={phone_server.serial}", "--adb-port", adb_server.port]
    malformed, nobody, unknown = refused(
        [*actor, "--name=a", "--learner=localhost"],
        [
            *actor,
            "--name=b",
            f"--learner=tcp://127.0.0.1:{ports.free_port()}",
            "--connect-timeout-s=0.5",
        ],
        [
            *actor,
            "--name=c",
            "--learner=tcp://no.such.host.invalid:7000",
            "--connect-timeout-s=0.5",
            "--insecure",
        ],
    )
    assert "'localhost' is not an address of the form tcp://host:port" in malformed
    for line in (nobody, unknown):
        assert "No learner answered" in line and "within 0.5 s. Start launch/learner.py" in line


def test_a_task_file_with_an_unknown_field(refused, tmp_path):
    (tmp_path / "tasks.yaml").write_text(TASKS)
    said = refused(
        ["learner", "--workdir=run", "--tasks=tasks.yaml"],
        ["evaluate", "--checkpoint=nowhere", "--tasks=tasks.yaml"],
    )
    for line in said:
        assert "tasks.yaml, task 1: unknown field 'cheks'; known are checks, family" in line
