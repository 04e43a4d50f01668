"""Several actors of one command."""

import pathlib
import textwrap

from launch import fleet
from launch.actor import Args


def test_words_give_the_same_arguments_again():
    import tyro

    args = Args(
        emulator=("phone", "a:5555"),
        deny_packages=("a.b", "c.d"),
        deny_actions=("TYPE",),
        settle_s=0.5,
        avd_flags="-gpu off",
        metrics=pathlib.Path("m.jsonl"),
    )
    assert tyro.cli(Args, args=fleet.words(args)) == args


def test_each_actor_has_a_name_a_seed_and_a_file_of_its_own(tmp_path):
    args = Args(emulator=("phone",), copies=2, seed=5, metrics=pathlib.Path("m.jsonl"), name="n")
    first, second = (fleet.single(args, "phone", i, tmp_path) for i in range(2))
    assert (first.name, second.name) == ("n-0", "n-1")
    assert (first.seed, second.seed) == (5, 6)
    assert second.metrics == pathlib.Path("m-1.jsonl")
    assert first.retries == second.retries == tmp_path / "retries"
    assert first.copies == 1


def test_a_bad_one_does_not_stop_the_others(adb_server, tmp_path, monkeypatch):
    actor = tmp_path / "actor.py"
    actor.write_text(
        textwrap.dedent(
            """
            import sys, time
            if "--emulator=bad" in sys.argv:
                sys.exit(2)
            time.sleep(1.0)
            """
        )
    )
    monkeypatch.setattr(fleet, "_ACTOR", actor)
    args = Args(emulator=("bad", "good"), logs=tmp_path / "logs")
    assert fleet.run(args, adb_server.port) == 0
    args = Args(emulator=("bad", "bad"), logs=tmp_path / "logs2")
    assert fleet.run(args, adb_server.port) == 1
