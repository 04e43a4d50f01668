"""The orchestration with a real adb server and real phones; the learner and the rest stand in."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import rich.console

from common import errors
from launch import local, summary
from launch.display import Display
from launch.processes import ProcessDied
from launch.system import LocalConfig, LocalSystem

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MARK = "DISTRL_TEST_RUN"

PHONE = f"""
import runpy, sys
sys.path[0] = {str(REPOSITORY)!r}
runpy.run_path({str(REPOSITORY / "launch" / "phone.py")!r}, run_name="__main__")
"""
FLAGS = """
import json, pathlib, sys, time
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
"""
LEARNER = f"""{FLAGS}
workdir = pathlib.Path(flags["workdir"])
time.sleep(0.5)
record = {{"finished": True, "warm_start_step": 3, "final_step": 9, "episodes": 40, "updates": 9}}
(workdir / "learner.json").write_text(json.dumps(record))
(workdir / "learner_flags.json").write_text(json.dumps(flags))
"""
ACTOR = f"{FLAGS}\nprint(json.dumps(flags), flush=True)\ntime.sleep(60)\n"
EVALUATE = f"""{FLAGS}
step = int(pathlib.Path(flags["checkpoint"]).name)
score = {{"success": step / 10, "n": int(flags["episodes"]), "low": 0.1, "high": 0.9}}
modes = {{"sampled": score, "greedy": score}}
pathlib.Path(flags["output"]).write_text(json.dumps(modes | {{"flags": flags}}))
"""


@pytest.fixture
def launchers(tmp_path, monkeypatch):
    monkeypatch.setenv(MARK, str(tmp_path))
    folder = tmp_path / "launchers"
    folder.mkdir()
    sources = {"phone": PHONE, "learner": LEARNER, "actor": ACTOR, "evaluate": EVALUATE}
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def run(launchers: pathlib.Path, workdir: pathlib.Path) -> dict:
    workdir.mkdir()
    config = LocalConfig(seed=3, evaluation_episodes=5, minutes=1)
    display = Display(rich.console.Console())
    with LocalSystem(config, workdir, display, launchers) as system:
        return system.run()


def processes_of(mark: str) -> list[str]:
    """Returns the command lines of the processes that inherited a mark in the environment."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"\0{MARK}={mark}\0".encode() in b"\0" + (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended meanwhile
            continue
    return found


def test_a_run_trains_then_evaluates_both_checkpoints_and_leaves_nothing(launchers, tmp_path):
    workdir = tmp_path / "run"
    result = run(launchers, workdir)
    assert result["seed"] == 3
    assert result["episodes"] == 40
    expected = {"n": 5, "low": 0.1, "high": 0.9}
    assert result["warm_start"]["sampled"] == {"success": 0.3, **expected}
    assert result["final"]["greedy"] == {"success": 0.9, **expected}

    learner = json.loads((workdir / "learner_flags.json").read_text())
    actors = [json.loads((workdir / f"logs/actor-{i}.log").read_text()) for i in (0, 1)]
    assert learner["seed"] == "3"
    assert {actor["learner"] for actor in actors} == {learner["listen"]}
    assert actors[0]["emulator"] != actors[1]["emulator"]
    assert actors[0]["seed"] != actors[1]["seed"]
    evaluations = [json.loads(path.read_text())["flags"] for path in (workdir / "eval").iterdir()]
    assert len({flags["emulator"] for flags in evaluations}) == 2
    assert len({flags["seed"] for flags in evaluations}) == 1  # the same tasks and layouts
    assert not processes_of(str(tmp_path))


def test_a_learner_that_dies_twice_ends_the_run_with_its_last_words(launchers, tmp_path):
    (launchers / "learner.py").write_text("print('no good'); raise SystemExit(3)")
    with pytest.raises(ProcessDied, match=r"learner .* exit code 3 after 1 restarts(.|\n)*no good"):
        run(launchers, tmp_path / "run")
    assert not processes_of(str(tmp_path))


def test_a_learner_that_was_stopped_is_no_finished_run(launchers, tmp_path):
    stopped = LEARNER.replace('"finished": True', '"finished": False')
    (launchers / "learner.py").write_text(stopped)
    with pytest.raises(errors.DistRLError, match="go on with --workdir"):
        run(launchers, tmp_path / "run")


@pytest.mark.parametrize("words", [["--actors=0"], ["--seed=-1"], ["--minutes=0"]])
def test_a_value_out_of_range_is_a_sentence_and_exit_code_2(words, capfd, tmp_path):
    assert local.main([*words, f"--workdir={tmp_path / 'run'}"]) == 2
    assert capfd.readouterr().err.startswith(f"local: {words[0].split('=')[0]} must be in ")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_something_else_is_refused(capfd, tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    assert local.main([f"--workdir={tmp_path}"]) == 2
    assert "name another --workdir" in capfd.readouterr().err


def test_a_run_goes_on_with_its_own_seed_only(capfd, tmp_path):
    local._open(tmp_path, seed=1)
    local._open(tmp_path, seed=1)
    assert local.main([f"--workdir={tmp_path}", "--seed=2"]) == 2
    assert "--seed 1" in capfd.readouterr().err


def test_the_summary_says_what_online_learning_gained(tmp_path):
    def scores(success: float) -> dict:
        score = {"success": success, "n": 182, "low": success - 0.07, "high": success + 0.07}
        return {"sampled": score, "greedy": score}

    numbers = {"seed": 0, "actors": 2, "wall_s": 600.0, "episodes": 2000, "updates": 500}
    result = {**numbers, "warm_start": scores(0.5), "final": scores(0.75)}
    summary.write(result, tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert "| warm start | sampled | 50.0 % | 43.0 to 57.0 % | 182 |" in text
    assert "+25.0 points" in text
    assert json.loads((tmp_path / "summary.json").read_text()) == result


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_real_system_ends_within_ten_seconds(number, tmp_path):
    workdir = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "launch/local.py"), f"--workdir={workdir}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, MARK: str(tmp_path)},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while len(list((workdir / "logs").glob("actor-*.log"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(5)  # into the middle of something
        assert len(processes_of(str(tmp_path))) >= 6
        began = time.monotonic()
        process.send_signal(number)
        process.wait(timeout=10)
        while left := processes_of(str(tmp_path)):
            assert time.monotonic() - began < 10, left
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
