"""The evaluation's launcher: its numbers, its progress, and what it answers to bad input."""

import os
import pathlib
import subprocess
import sys

import pytest

from actors.evaluate import Result
from common.models.autoui import PRESETS, AutoUIConfig
from common.models.text import Tokenizer
from common.types import Ending
from launch import evaluate

LAUNCHER = pathlib.Path(__file__).resolve().parents[2] / "launch" / "evaluate.py"


def result(ending: Ending, family: str = "open", steps: int = 2, invalid: int = 0) -> Result:
    return Result("task", "template", family, "general", 0, ending, "", steps, invalid)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 10, 0.0, 0.2775),  # z^2 / (n + z^2) = 3.8415 / 13.8415
        (10, 10, 0.7225, 1.0),
        # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval(successes, n, low, high):
    assert evaluate.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_what_the_phone_cut_short_counts_neither_way():
    summary = evaluate.summarise(
        [
            result(Ending.SUCCESS, steps=3, invalid=1),
            result(Ending.SUCCESS, "search", steps=4),
            result(Ending.HORIZON, steps=5, invalid=2),
            result(Ending.TRUNCATED, "timer", steps=100, invalid=50),
        ]
    )
    assert summary.pop("low") < 2 / 3 < summary.pop("high")
    assert summary == {
        "success": 2 / 3,
        "n": 3,
        "truncated": 1,
        "steps_mean": 4.0,
        "invalid_share": 0.25,
        "families": {"open": {"success": 0.5, "n": 2}, "search": {"success": 1.0, "n": 1}},
    }


def test_no_episodes_are_no_success():
    summary = evaluate.summarise([result(Ending.TRUNCATED)])
    assert (summary["success"], summary["n"]) == (0.0, 0)
    assert (summary["low"], summary["high"]) == (0.0, 1.0)


def test_progress_is_said_every_twenty_episodes(capsys):
    running = [result(Ending.SUCCESS if i % 4 else Ending.HORIZON) for i in range(45)]
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
        (["--modes", "sampled", "bold"], "--modes are sampled and greedy, not bold."),
        (["--adb-port=70000"], "--adb-port must be between 1 and 65535, not 70000."),
        (["--output=/dev/null/x.json"], "--output /dev/null/x.json can't be written"),
    ],
)
def test_a_flag_out_of_range_is_a_sentence_and_exit_code_2(words, sentence, tmp_path, capsys):
    assert evaluate.main([f"--checkpoint={tmp_path}", *words]) == 2
    assert capsys.readouterr().err.startswith(f"evaluate: {sentence}")


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
        monkeypatch.setattr("learner.checkpoint.load_policy", lambda path, needs: ({}, meta))
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
