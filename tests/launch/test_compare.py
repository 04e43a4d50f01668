"""Paired comparisons of two reports."""

import json

import pytest

from launch import compare


def report(outcomes, panel="p", seed=7, **config):
    """One episode for each letter: s success, h horizon, u unknown."""
    names = {"s": "success", "h": "horizon", "u": "unknown"}
    rows = [
        {"task_id": f"t{i // 2}", "seed": seed + i, "repeat": 0, "outcome": names[letter]}
        for i, letter in enumerate(outcomes)
    ]
    return {
        "modes": ["sampled", "greedy"], "panel_hash": panel, "config": {"seed": 0, **config},
        "sampled": {"episodes": rows}, "greedy": {"episodes": rows[:1]},
    }  # fmt: skip


def write(folder, name, made):
    path = folder / name
    path.write_text(json.dumps(made))
    return str(path)


def test_a_paired_difference(tmp_path, capsys):
    a = write(tmp_path, "a.json", report("sshhhhhhhhuu", judge="state", output="x"))
    b = write(tmp_path, "b.json", report("shsssssshhsh", judge="gemini", output="y"))
    assert compare.main([a, b, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["pairs"], found["only_in_one"]) == (10, 2)
    assert [found[k] for k in ("both", "only_a", "only_b", "neither")] == [1, 1, 6, 2]
    assert found["difference"] == pytest.approx(0.5)
    assert found["low"] < 0.5 < found["high"]
    assert found["mcnemar_p"] == pytest.approx(2 * (1 + 7) / 2**7)
    assert found["config"] == {"judge": ["state", "gemini"]}
    assert found["same_panel"]
    assert compare.main([a, b]) == 0
    said = capsys.readouterr().out
    assert "B - A: +50.0 points" in said and "McNemar's exact p = 0.125" in said
    assert "2 episodes count in one of them alone" in said


def test_the_same_has_no_difference(tmp_path, capsys):
    a = write(tmp_path, "a.json", report("shsh"))
    assert compare.main([a, a, "--mode=greedy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["difference"], found["mcnemar_p"], found["config"]) == (0.0, 1.0, {})


def test_what_can_t_be_compared_is_a_sentence_and_exit_code_2(tmp_path, capsys):
    a = write(tmp_path, "a.json", report("shsh"))
    other = write(tmp_path, "b.json", report("shsh", panel="q", seed=100))
    nothing = write(tmp_path, "c.json", {"modes": ["sampled"]})
    for words, sentence in (
        ([a, other], "have no counted episode in common"),
        ([a, nothing], "is no report of launch/evaluate.py"),
        ([a, str(tmp_path / "none.json")], "is no report of launch/evaluate.py"),
        ([a, a, "--mode=bold"], "has no 'bold' episodes, but sampled, greedy."),
    ):
        assert compare.main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("compare: ") and sentence in said
