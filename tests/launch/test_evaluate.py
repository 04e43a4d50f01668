"""The evaluation's launcher: whole evaluations on simulated phones, and answers to bad input."""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from actors.evaluate import Result
from actors.evaluators.records import read_records
from common.models.autoui import PRESETS, AutoUIConfig
from common.models.text import Tokenizer
from launch import evaluate
from launch.evaluation import Evaluation
from tests.actors.evaluators import stub as stubs
from tests.actors.evaluators.stub import failure, text

LAUNCHER = pathlib.Path(__file__).resolve().parents[2] / "launch" / "evaluate.py"


def test_progress_is_said_every_twenty_episodes(capsys):
    running = [
        Result(i, 0, "t", "g", "t", "open", "general", 0, "success" if i % 4 else "horizon")
        for i in range(45)
    ]
    assert list(evaluate._shown(running, "greedy", 182)) == running
    assert capsys.readouterr().err.splitlines() == [
        "greedy 20 of 182, success 0.75 so far",
        "greedy 40 of 182, success 0.75 so far",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--episodes=0"], "--episodes must be in 1..100000, not 0."),
        (["--seed=-1"], "--seed must be in 0..2147483647, not -1."),
        (["--phones=65"], "--phones must be in 1..64, not 65."),
        (["--horizon=0"], "--horizon must be in 1..1000, not 0."),
        (["--modes", "sampled", "bold"], "--modes are sampled and greedy, not bold."),
        (["--adb-port=70000"], "--adb-port must be between 1 and 65535, not 70000."),
        (["--output=/dev/null/x.json"], "--output /dev/null/x.json can't be written"),
        (["--audit-judge=gemini"], "--audit-judge needs a file for the verdicts"),
        (["--judge-attempts=0"], "--judge-attempts must be in 1..20, not 0."),
    ],
)
def test_a_flag_out_of_range_is_a_sentence_and_exit_code_2(words, sentence, tmp_path, capsys):
    assert evaluate.main([f"--checkpoint={tmp_path}", *words]) == 2
    assert capsys.readouterr().err.startswith(f"evaluate: {sentence}")


def test_a_policy_needs_a_checkpoint(capsys):
    assert evaluate.main([]) == 2
    assert capsys.readouterr().err.startswith("evaluate: --checkpoint says whose policy")


def test_what_is_not_there_is_a_sentence_and_exit_code_2(tmp_path):
    (tmp_path / "empty").mkdir()
    commands = {
        "There is no checkpoint folder": ["--checkpoint=nowhere"],
        "holds no finished checkpoint": ["--checkpoint=empty"],
        "There are no tasks 'general': give one of": ["--checkpoint=empty", "--tasks=general"],
    }
    running = {  # side by side: each imports for a while
        sentence: subprocess.Popen(
            [sys.executable, str(LAUNCHER), *words],
            cwd=tmp_path,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for sentence, words in commands.items()
    }
    for sentence, process in running.items():
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, ""), err
        assert err.startswith("evaluate: ") and sentence in err
        assert len(err.splitlines()) == 1


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """Evaluates a checkpoint of a model that does not exist; returns what was said about it."""

    def refused(model, *words):
        tokenizer = Tokenizer.train(["a tap"], vocab_size=300).to_json()
        meta = {"step": 1, "model": model.to_dict(), "tokenizer": tokenizer, "sampling": {}}
        monkeypatch.setattr("launch.evaluation.load_policy", lambda path, needs: ({}, meta))
        monkeypatch.setattr(evaluate.one_thread, "configure", lambda: None)
        assert evaluate.main([f"--checkpoint={tmp_path}", *words]) == 2
        return capsys.readouterr().err

    return refused


def test_an_unknown_serial_is_a_sentence_and_exit_code_2(adb_server, refused):
    said = refused(AutoUIConfig(), f"--adb-port={adb_server.port}", "--emulator=emulator-2")
    assert said.startswith("evaluate: The device 'emulator-2' is not attached.")


def test_a_model_and_a_vision_folder_must_go_together(refused, tmp_path):
    said = refused(PRESETS["small"])
    assert said.startswith("evaluate: ") and "with --vision-folder" in said
    said = refused(PRESETS["small"], f"--vision-folder={tmp_path}")
    assert said.startswith(f"evaluate: Cannot read {tmp_path / 'config.json'}")
    assert "leave --vision-folder out" in refused(AutoUIConfig(), f"--vision-folder={tmp_path}")


@pytest.fixture
def run(adb_server, serve_phones, monkeypatch, tmp_path):
    """Evaluates on two simulated phones; returns the report."""
    monkeypatch.setattr(evaluate.one_thread, "configure", lambda: None)
    with serve_phones(2) as phones:

        def run(*words, code=0):
            output = tmp_path / "report.json"
            command = [
                f"--adb-port={adb_server.port}", f"--output={output}", "--emulator",
                *phones.serials, *words,
            ]  # fmt: skip
            assert evaluate.main(command) == code
            return json.loads(output.read_text()) if code == 0 else None

        yield run


def test_the_expert_does_all_and_the_random_agent_hardly_anything(run, tmp_path, capsys):
    expert = run("--agent=expert", "--episodes=16")
    assert expert["modes"] == ["expert"]
    assert expert["expert"]["success"] == 1.0 and expert["expert"]["n"] == 16
    assert len(expert["devices"]) == 2 and expert["not_repeatable"] == []
    assert expert["overlap"] == []
    assert "Success is the share" in (tmp_path / "report.md").read_text()
    assert "</html>" in (tmp_path / "report.html").read_text()
    printed = json.loads(capsys.readouterr().out)
    assert printed["expert"]["n"] == 16 and "episodes" not in printed["expert"]
    lost = run("--agent=random", "--episodes=16", "--repeats=2")
    assert lost["random"]["n"] == 32 and lost["random"]["success"] < 0.5
    assert lost["panel_hash"] == expert["panel_hash"]
    assert set(lost["random"]["pass_at_k"]) == {"1", "2"}


def strip(report):
    """What may differ between two evaluations of the same."""
    rows = [{k: v for k, v in row.items() if k != "wall_s"} for row in report["random"]["episodes"]]
    return report["panel_hash"], rows


def test_the_same_twice(run):
    words = ("--agent=random", "--episodes=6", "--repeats=2", "--horizon=4", "--seed=5")
    assert strip(run(*words)) == strip(run(*words))
    assert strip(run(*words)) != strip(run(*words[:-1], "--seed=6"))


def test_a_preset_fixes_split_count_horizon_and_order(run):
    report = run("--agent=random", "--preset=digirl-webshop", "--horizon=1")
    assert (report["tasks"], report["panel_size"]) == ("webshop-test", 96)
    assert report["horizon"] == {"webshop": 1}
    assert report["protocol"]["steps"] == 20
    first = [row["task_id"] for row in report["random"]["episodes"][:2]]
    assert first == [row["task"] for row in report["random"]["tasks"][:2]]


@pytest.fixture
def stub():
    with stubs.serving() as stub:
        yield stub


def test_a_model_judges_and_the_state_is_asked_the_same(run, stub, tmp_path):
    records = tmp_path / "verdicts.jsonl"
    stub.answer = text("Status: failure")
    report = run(
        "--agent=random", "--episodes=4", "--horizon=4", "--judge=openai:m",
        f"--judge-endpoint={stub.url}/v1", f"--judge-records={records}", "--audit-judge=state",
        "--judge-price-in=1",
    )  # fmt: skip
    assert report["random"]["success"] == 0.0 and report["random"]["horizon"] == 4
    assert report["judge"]["calls"] == len(stub.calls) and report["judge"]["usd"] > 0
    assert report["not_repeatable"]
    said = list(read_records(records))
    assert {record.judge for record in said} == {"openai:m", "state"}
    assert {str(r.verdict.status) for r in said if r.judge == "openai:m"} == {"failure"}


def test_a_judge_that_is_away_stops_the_evaluation_with_the_reason(run, stub, capsys):
    stub.answer = failure(500)
    run(
        "--agent=random", "--episodes=40", "--judge=openai:m", "--judge-attempts=1",
        f"--judge-endpoint={stub.url}/v1", code=1,
    )  # fmt: skip
    said = capsys.readouterr().err
    assert "did not answer" in said and "--judge-unknown-limit" in said and "http_500" in said


def test_following_takes_each_new_checkpoint_until_the_run_is_finished(tmp_path):
    folder = tmp_path / "checkpoints"

    def save(step):
        (folder / str(step) / "params").mkdir(parents=True)

    def later(seconds):
        """The learner goes on while the follower sleeps."""
        if not (folder / "7").exists():
            save(7)
            (folder / "9").mkdir()  # not finished yet
        else:
            (folder / "9" / "params").mkdir()
            (tmp_path / "learner.json").write_text('{"finished": true}')

    class Loads:
        steps = staticmethod(Evaluation.steps)

        def load(self, checkpoint):
            return checkpoint.name

    args = evaluate.Args(checkpoint=folder, follow=True)
    save(3)
    assert list(evaluate._followed(args, Loads(), sleep=later)) == ["3", "7", "9"]
    (tmp_path / "learner.json").unlink()
    now = itertools.count(step=100.0)
    args = evaluate.Args(checkpoint=folder, follow=True, follow_timeout_s=1000.0)
    followed = evaluate._followed(args, Loads(), lambda: next(now), lambda seconds: None)
    assert list(followed) == ["9"]  # and then it gives up
