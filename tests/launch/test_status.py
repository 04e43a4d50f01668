"""The status of a learner, as people and programs read it."""

import json

from common import keys
from common.keys import LearnerKeys
from common.types import Version
from launch import status
from learner.publish import Publisher
from tests.actors.test_client import Client, Learner, eventually, make_episode

SNAPSHOT = {
    "run": "r",
    "mode": "explore",
    "lineage": 2,
    "version": 9,
    "learner": {"phase": "reinforce", "elapsed_s": 12.34567, "success": {"a": 1.0}},
    "counters": {"accepted": 7, "refused": 2, "refused/STALE": 2, "replies_lost": 0},
}


def actor(**changes):
    return {
        "device": "phone",
        "state": "exploring",
        "detail": "",
        "last_seen_s": 1.0,
        "version": [2, 9],
        "episodes": 3,
        "spooled": 1,
        "dead": 0,
        "refused": {},
    } | changes


def rows(**actors):
    return {row[0]: row for row in status.about_actors(SNAPSHOT | {"actors": actors})}


def test_a_lost_actor_and_a_late_one_are_named():
    found = rows(
        fine=actor(),
        lost=actor(last_seen_s=31.0),
        late=actor(version=[2, 5]),
        old=actor(version=[1, 30]),
        new=actor(version=None),
    )
    assert {name: row[2] for name, row in found.items() if name != "lost"} == dict.fromkeys(
        ("fine", "late", "old", "new"), "exploring"
    )
    assert found["lost"][2] == "lost"
    assert [found[name][4] for name in ("fine", "late", "old", "new")] == [
        "2.9",
        "2.5 (4 behind)",
        "1.30",
        "none",
    ]


def test_drops_come_with_their_reasons():
    found = rows(fine=actor(), bad=actor(dead=2, refused={"STALE": 2, "BAD_VALUE": 1}))
    assert [found[name][7] for name in ("fine", "bad")] == ["0", "2 (BAD_VALUE 1, STALE 2)"]
    said = "\n".join(status.about_learner(SNAPSHOT))
    assert "Run r: explore, version 2.9" in said
    assert "phase reinforce, elapsed_s 12.35" in said and "success" not in said
    assert "Dropped: refused/STALE 2" in said and "accepted 7" in said


def test_a_running_learner_answers_with_and_without_keys(tmp_path, capsys):
    keys.create(tmp_path / "k", ["one"])
    made = {"keys": LearnerKeys.load(tmp_path / "k/learner")}
    for options, flags in ({}, []), (made, [f"--keys={tmp_path / 'k/one'}"]):
        with (
            Publisher("tcp://127.0.0.1:0").start() as publisher,
            Learner(tmp_path / "journal", publisher, 0, **options).start() as learner,
        ):
            learner.set_pulse(1, 4, "wait")
            address = f"--learner=tcp://127.0.0.1:{learner.port}"
            if not options:
                with Client(learner, tmp_path / "spool") as client:
                    client.connect(5)
                    client.version = Version(1, 3)
                    client.send(make_episode(0))
                    eventually(
                        lambda: learner.actors["test"]["episodes"],
                        meanwhile=lambda: client.heartbeat("acting", "turn off wifi"),
                    )
            assert status.main([address, *flags]) == 0
            said = capsys.readouterr().out
            assert "version 1.4" in said
            assert ("1.3 (1 behind)\t1\t0\t0\tturn off wifi" in said) == (not options)
            assert status.main([address, *flags, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["run"] == "r"
    assert status.main([address, "--timeout-s=0.2"]) == 2
    assert capsys.readouterr().err.startswith("status: No learner answered")
