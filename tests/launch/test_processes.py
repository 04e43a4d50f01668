"""The supervisor on tiny Python children, and its launcher killed from outside."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from launch import processes
from launch.processes import Program, State, Supervisor
from tests.conftest import wait_for

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# A child that writes its id and waits; it starts a grandchild, which does the same.
FAMILY = """
import os, pathlib, signal, subprocess, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
if "stubborn" in name:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if name.startswith("child"):
    from common.guard import guarded
    subprocess.Popen(guarded([sys.executable, __file__, str(folder), "grand" + name]))
(folder / f"{name}.tmp").write_text(str(os.getpid()))
(folder / f"{name}.tmp").rename(folder / f"{name}.pid")
time.sleep(60)
"""

LAUNCHER = """
import pathlib, sys, time
from launch.processes import Program, Supervisor
folder = pathlib.Path(sys.argv[1])
with Supervisor(folder / "logs") as supervisor:
    for name in ("child", "child-stubborn"):
        command = [sys.executable, str(folder / "family.py"), str(folder), name]
        supervisor.start(Program(name, command))
    while True:
        supervisor.check()
        time.sleep(0.05)
"""
NAMES = ("child", "child-stubborn", "grandchild", "grandchild-stubborn")


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def is_alive(pid: int) -> bool:
    """A zombie counts as dead: in a container, nobody may reap an orphan."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def check_until(
    supervisor: Supervisor, condition: Callable[[], bool], timeout_s: float = 10
) -> None:
    def step() -> bool:
        supervisor.check()
        return condition()

    wait_for(step, "what is checked for", timeout_s)


@pytest.fixture
def launcher(tmp_path: pathlib.Path):
    """A launcher with two children and two grandchildren, all running."""
    (tmp_path / "family.py").write_text(FAMILY)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: all((tmp_path / f"{name}.pid").exists() for name in NAMES), "all four", 20)
        yield process, [int((tmp_path / f"{name}.pid").read_text()) for name in NAMES]
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_a_killed_launcher_leaves_no_orphan(launcher):
    process, pids = launcher
    assert all(map(is_alive, pids))
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(is_alive, pids)), "their end", 5)


def test_an_interrupt_ends_all_though_one_ignores_the_request(launcher):
    process, pids = launcher
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=10)
    assert time.monotonic() - start < 10
    wait_for(lambda: not any(map(is_alive, pids)), "their end", 1)


def test_a_program_is_restarted_within_its_budget_and_then_ends_the_run(tmp_path):
    code = "print('a start'); raise SystemExit(7)"
    with Supervisor(tmp_path, backoff_s=0.01) as supervisor:
        supervisor.start(Program("actor", python(code), restarts=2))
        with pytest.raises(processes.ProcessDied, match="actor ended with exit code 7 after 2 re"):
            check_until(supervisor, lambda: False)
    assert (tmp_path / "actor.log").read_text().splitlines() == ["a start"] * 3


def test_each_restart_waits_twice_as_long(tmp_path):
    code = "import time; print(time.monotonic()); raise SystemExit(7)"
    with Supervisor(tmp_path, backoff_s=0.2) as supervisor:
        supervisor.start(Program("actor", python(code), restarts=2))
        with pytest.raises(processes.ProcessDied):
            check_until(supervisor, lambda: False)
    first, second, third = map(float, (tmp_path / "actor.log").read_text().split())
    assert second - first > 0.2
    assert third - second > 0.4


def test_a_killed_program_comes_back_as_another_process(tmp_path):
    with Supervisor(tmp_path, backoff_s=0.01) as supervisor:
        supervisor.start(Program("actor", python("import time; time.sleep(60)"), restarts=1))
        killed = supervisor.pid("actor")
        os.kill(killed, signal.SIGKILL)
        check_until(supervisor, lambda: supervisor.pid("actor") != killed)
        assert supervisor.state("actor") is State.RUNNING
        os.kill(supervisor.pid("actor"), signal.SIGKILL)
        with pytest.raises(processes.ProcessDied, match=r"signal 9 .* after 1 restarts"):
            check_until(supervisor, lambda: False)


def test_unusable_flags_are_not_tried_again(tmp_path):
    code = "print('--port 0: too small'); raise SystemExit(2)"
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(Program("actor", python(code), restarts=3))
        with pytest.raises(processes.ProcessDied, match="--port 0: too small"):
            check_until(supervisor, lambda: False, timeout_s=5)


def test_exit_code_0_finishes_a_program_but_is_the_death_of_a_service(tmp_path):
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(Program("learner", python("pass")))
        check_until(supervisor, lambda: supervisor.state("learner") is State.FINISHED)
        supervisor.start(Program("adb", python("pass"), service=True))
        with pytest.raises(processes.ProcessDied, match="adb ended with exit code 0"):
            check_until(supervisor, lambda: False)


def test_services_outlive_the_programs_that_use_them(tmp_path):
    code = """
import signal, sys, time
def end(*_):
    print(time.monotonic(), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(Program("adb", python(code), service=True))
        supervisor.start(Program("actor", python(code)))
        logs = [supervisor.log_path(name) for name in ("actor", "adb")]
        wait_for(lambda: all(log.read_text() == "ready\n" for log in logs), "both", 5)
    actor, adb = (float(log.read_text().split()[1]) for log in logs)
    assert actor < adb


def test_what_a_dead_program_left_in_its_group_is_ended(tmp_path):
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
print(child.pid)
"""
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(Program("learner", python(code)))
        check_until(supervisor, lambda: supervisor.state("learner") is State.FINISHED)
        left = int(supervisor.log_path("learner").read_text())
        wait_for(lambda: not is_alive(left), "its end", 2)


def test_the_message_ends_with_the_last_twenty_lines_of_the_log(tmp_path):
    code = "[print('line', i) for i in range(3000)]; raise SystemExit(1)"
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(Program("learner", python(code)))
        with pytest.raises(processes.ProcessDied) as caught:
            check_until(supervisor, lambda: False)
    lines = str(caught.value).splitlines()
    assert lines[1:] == [f"line {i}" for i in range(2980, 3000)]


def test_a_nice_program_gives_way(tmp_path):
    code = "import os, time; time.sleep(.3); print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)"
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    with Supervisor(tmp_path) as supervisor:
        for name, nice, expected in (("keen", 0, mine), ("nice", 5, min(mine + 5, 19))):
            supervisor.start(Program(name, python(f"{code}; time.sleep(9)"), nice=nice))
            path = supervisor.log_path(name)
            wait_for(lambda path=path: path.read_text().strip(), "its word")
            assert int(path.read_text()) == expected
