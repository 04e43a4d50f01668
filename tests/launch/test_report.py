"""What a report counts, and that it reads well for programs and people."""

import json

import pytest

from actors.evaluate import Result
from launch import report


def result(index, outcome, family="open", repeat=0, steps=2, invalid=0, task="", cause=""):
    return Result(
        index, repeat, task or f"t{index}", f"Goal <{index}> | x", "template", family, "general", 7,
        outcome, cause, steps, invalid,
    )  # fmt: skip


def test_what_device_or_judge_cut_short_counts_neither_way():
    summary = report.summarise(
        [
            result(0, "success", steps=3, invalid=1),
            result(1, "success", "search", steps=4),
            result(2, "horizon", steps=5, invalid=2),
            result(3, "truncated", "timer", steps=100, invalid=50, cause="device: gone"),
            result(4, "unknown", cause="judge: timeout"),
            result(5, "done_at_start", steps=0),
        ]
    )
    assert summary["low"] < summary["success"] == 2 / 3 < summary["high"]
    counted = ("n", "truncated", "unknown", "done_at_start", "horizon", "gave_up")
    assert [summary[name] for name in counted] == [3, 1, 1, 1, 1, 0]
    assert summary["unknown_share"] == 1 / 4
    assert (summary["steps_mean"], summary["invalid_share"]) == (4.0, 0.25)
    assert summary["families"] == {
        "open": {"success": 0.5, "n": 2},
        "search": {"success": 1.0, "n": 1},
    }
    assert summary["causes"] == {"device: gone": 1, "judge: timeout": 1}
    assert [task["not_counted"] for task in summary["tasks"]] == [0, 0, 0, 1, 1, 1]


def test_no_episodes_are_no_success():
    summary = report.summarise([result(0, "truncated")])
    assert (summary["success"], summary["n"], summary["bootstrap"]) == (None, 0, None)
    assert (summary["low"], summary["high"]) == (0.0, 1.0)
    assert json.loads(json.dumps(summary, allow_nan=False)) == json.loads(json.dumps(summary))


def test_pass_at_k_and_flaky_tasks_by_hand():
    outcomes = ["success", "horizon"], ["success", "success"], ["horizon", "unknown"]
    summary = report.summarise(
        [result(i, o, repeat=r) for i, two in enumerate(outcomes) for r, o in enumerate(two)]
    )
    assert summary["flaky"] == ["t0"]
    assert summary["pass_at_k"] == {"1": (0.5 + 1 + 0) / 3, "2": 1.0}  # entry 2 has one try
    assert summary["pass_all_k"] == {"1": 0.5, "2": 0.5}


@pytest.fixture
def whole():
    mode = report.summarise(
        [result(0, "success"), result(1, "horizon"), result(1, "success", repeat=1)]
    )
    return {
        "agent": "policy", "checkpoint": "runs/<x>", "tasks": "all-test", "panel_size": 2,
        "panel_tasks": 2, "panel_hash": "abc", "repeats": 2, "seed": 0, "wall_s": 3.0,
        "judge": {"name": "state", "calls": 0, "tokens": 0, "usd": 0.0}, "devices": ["e-1"],
        "preset": "paper-general", "protocol": {"steps": 10}, "horizon": {"general": 3},
        "overlap": [], "repeated": [], "not_repeatable": ["a model judges"],
        "modes": ["sampled"], "sampled": mode,
    }  # fmt: skip


def test_all_three_forms_are_written(whole, tmp_path):
    path = tmp_path / "r.json"
    report.write(whole, path)
    assert json.loads(path.read_text())["sampled"]["n"] == 3
    text = (tmp_path / "r.md").read_text()
    assert "Not as paper-general has it: 3 steps, not 10" in text
    assert "panel abc" in text and "66.7 %" in text and "Not repeatable: a model judges" in text
    assert "Goal <1> \\| x | 1 of 2 | 0 | 2.0 | flaky |" in text
    page = (tmp_path / "r.html").read_text()
    assert "runs/&lt;x&gt;" in page and "Goal &lt;1&gt;" in page and "<x>" not in page
    assert "http" not in page  # nothing is loaded from elsewhere
