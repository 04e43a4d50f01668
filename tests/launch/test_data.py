"""The launcher of recorded episodes, from the expert's first to a policy that learned offline."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from common.codec import EpisodeSpec
from launch import data
from learner.dataset import Dataset, Writer
from tests.episodes import episode

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=64)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def folder(tmp_path):
    with Writer(tmp_path / "d", SPEC, "{}") as writer:
        writer.write(dataclasses.replace(episode(3, seq=0), screens=(PNG,) * 3))
        writer.write(episode(2, seq=1, success=False))
    return tmp_path / "d"


def test_inspect_lists_episodes_and_shows_one(folder, capsys):
    assert data.main(["inspect", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "prompt_length=8" in lines[0]
    assert lines[1].split()[:6] == ["0", "policy", "success", "3", "steps", "3"]
    assert data.main(["inspect", str(folder), "--most", "1"]) == 0
    assert "more with --most" in capsys.readouterr().out
    assert data.main(["inspect", str(folder), "--episode", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["ending"] == "horizon"


def test_stats_and_export_are_json(folder, capsys, tmp_path):
    assert data.main(["stats", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out)["by_family"] == {"family": {"success": 0.5, "n": 2}}
    assert data.main(["export", str(folder), str(tmp_path / "texts.jsonl")]) == 0
    assert data.main(["export", str(folder), "-"]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "texts.jsonl").read_text() == text
    assert [len(json.loads(line)["steps"]) for line in text.splitlines()] == [3, 2]


def test_validate_exits_with_one_if_something_is_damaged(folder, capsys):
    assert data.main(["validate", str(folder)]) == 0
    assert "all in order" in capsys.readouterr().out
    (path,) = Dataset(folder).segments()
    path.write_bytes(path.read_bytes()[:-1])
    assert data.main(["validate", str(folder)]) == 1
    assert "record, number 1, is not whole" in capsys.readouterr().out


def test_merge_says_what_was_there(folder, capsys, tmp_path):
    assert data.main(["merge", str(tmp_path / "m"), str(folder), str(folder)]) == 0
    assert "Wrote 2 episodes" in capsys.readouterr().out
    assert len(list(Dataset(tmp_path / "m"))) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stats", "nowhere"], "nowhere is no folder of recorded episodes"),
        (["inspect", "d", "--episode", "9"], "d holds no episode 9"),
        (["inspect", "d", "--episode", "-1"], "d holds no episode -1"),
        (["export", "d", "no/where.jsonl"], "can't be written"),
        (["merge", "d", "d"], "d is among what is to be merged into it"),
        (["collect", "x", "--agent", "policy"], "--agent policy needs a --checkpoint"),
        (["collect", "x", "--episodes", "0"], "--episodes is 1 or more"),
        (["import", "digirl-pt", "a.pt", "--output", "x", "--model", "no"], "no checkpoint folder"),
    ],
)
def test_bad_input_is_a_sentence(folder, capsys, monkeypatch, words, sentence):
    monkeypatch.chdir(folder.parent)
    assert data.main(words) == 2
    assert sentence in capsys.readouterr().err


def run(*words, adb_server, cwd):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env=adb_server.environment | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_expert_is_recorded_and_learned_from_without_any_actor(
    adb_server, phone_server, tmp_path
):
    collect = [REPOSITORY / "launch" / "data.py", "collect", "recorded", "--episodes", 6,
               "--emulator", phone_server.serial, "--tasks", "general-train",
               "--screens"]  # fmt: skip
    run(*collect, adb_server=adb_server, cwd=tmp_path)
    dataset = Dataset(tmp_path / "recorded")
    assert list(dataset.problems()) == []
    records = list(dataset)
    assert len(records) == 6 and {one.episode.source for one in records} == {"expert"}
    assert all(len(one.images) == len(one.episode) for one in records)
    learner = [REPOSITORY / "launch" / "learner.py", "--workdir", "run", "--offline-data",
               "recorded", "--offline-updates", 3, "--demonstrations", 3, "--episodes", 0,
               "--listen", "tcp://127.0.0.1:0", "--set", "warm_start.begin", 2,
               "--set", "warm_start.max_updates", 4, "--set", "reinforce.batch_steps", 32,
               "--algorithm", "distrl", "--tasks", "general-train"]  # fmt: skip
    run(*learner, adb_server=adb_server, cwd=tmp_path)
    summary = json.loads((tmp_path / "run" / "learner.json").read_text())
    assert summary["finished"] and summary["episodes"] == 0
    assert (summary["offline_updates"], summary["updates"]) == (3, 7)
    assert summary["demonstrations"] == 3
    collect = [REPOSITORY / "launch" / "data.py", "collect", "recorded", "--episodes", 2,
               "--emulator", phone_server.serial, "--checkpoint", "run/checkpoints"]  # fmt: skip
    run(*collect, adb_server=adb_server, cwd=tmp_path)  # beside the expert's: the same tokenizer
    added = [one.episode for one in Dataset(tmp_path / "recorded")][6:]
    assert [one.source for one in added] == ["policy", "policy"]
    assert all(np.isfinite(one.trajectory.behaviour_log_probs).all() for one in added)
