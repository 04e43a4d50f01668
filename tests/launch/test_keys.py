"""Keys are made by one command, and never made over."""

import pathlib

from common.keys import ActorKeys, LearnerKeys, read_allowed
from launch import keys


def test_one_command_makes_what_both_ends_load(tmp_path, capsys):
    folder = tmp_path / "keys"
    assert keys.main([str(folder), "one", "two"]) == 0
    assert f"--keys {folder / 'learner'}" in capsys.readouterr().out
    learner, one = LearnerKeys.load(folder / "learner"), ActorKeys.load(folder / "one")
    assert sorted(read_allowed(learner.allowed).values()) == ["one", "two"]
    assert read_allowed(learner.allowed)[one.public] == "one"
    assert learner.secret not in (one.secret, one.public, one.learner)

    assert keys.main([str(folder), "three"]) == 0  # later, for the same learner
    assert LearnerKeys.load(folder / "learner").secret == learner.secret
    assert ActorKeys.load(folder / "three").learner == one.learner


def test_nothing_is_made_over(tmp_path, capsys):
    folder = tmp_path / "keys"
    assert keys.main([str(folder), "one"]) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for names in (["two", "one"], ["learner"], ["../x"], [""]):
        assert keys.main([str(folder), *names]) == 2
        assert capsys.readouterr().err.startswith("keys: ")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert keys.main([str(pathlib.Path("/proc/nowhere")), "one"]) == 2
