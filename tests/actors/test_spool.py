"""The spool: what an actor had made is there for the next one, within bounds."""

import errno
import pathlib

import pytest

from actors import spool as spool_module
from actors.spool import Spool
from common import messages
from common.errors import ConfigError


def frames(number, size=100):
    return messages.pack("EPISODE", {"boot": "b", "seq": number}, bytes(size))


def fill(spool, *numbers):
    return [spool.put(frames(number)) for number in numbers]


def content(spool):
    return [messages.unpack(spool.load(n))[0].integer("seq") for n in spool.numbers]


def test_the_next_actor_finds_what_was_left_in_order(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 0, 1, 2)
        spool.remove(spool.numbers[1])
        assert content(spool) == [0, 2] and len(spool) == 2
        assert spool.load(spool.numbers[0]) == frames(0)
    with Spool(tmp_path) as spool:
        fill(spool, 3)
        assert content(spool) == [0, 2, 3]
        assert spool.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.episode"))
        for number in spool.numbers:
            spool.remove(number)
        assert (len(spool), spool.size_bytes) == (0, 0) and not list(tmp_path.glob("*.episode"))


def test_beyond_its_capacity_it_takes_nothing_but_a_first_of_any_size(tmp_path):
    with Spool(tmp_path, capacity_bytes=400) as spool:
        assert fill(spool, 0, 1, 2, 3) == [True, True, False, False]
        spool.remove(0)
        assert fill(spool, 4) == [True] and content(spool) == [1, 4]
    with Spool(tmp_path, capacity_bytes=1) as spool:
        assert fill(spool, 5) == [False]
        for number in spool.numbers:
            spool.remove(number)
        assert fill(spool, 6, 7) == [True, False]


def test_a_full_disk_is_no_room_and_another_failure_is_named(tmp_path, monkeypatch):
    with Spool(tmp_path) as spool:
        code = errno.ENOSPC

        def fail(path, data):
            raise OSError(code, "no")

        with monkeypatch.context() as patched:
            patched.setattr(pathlib.Path, "write_bytes", fail)
            assert fill(spool, 0) == [False]
            code = errno.EROFS
            with pytest.raises(ConfigError, match=r"spool .* can't be written"):
                fill(spool, 0)
        assert fill(spool, 0) == [True] and content(spool) == [0]


def test_what_was_half_written_or_is_damaged_is_put_aside(tmp_path):
    with Spool(tmp_path) as spool:
        fill(spool, 0, 1, 2)
    (tmp_path / "000000000003.tmp").write_bytes(b"half")
    damaged = tmp_path / "000000000001.episode"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with Spool(tmp_path) as spool:
        assert spool.load(1) is None
        assert content(spool) == [0, 2]
        assert "damaged" in next((tmp_path / "dead").glob("*.txt")).read_text()
        assert not list(tmp_path.glob("*.tmp"))


def test_the_dead_are_few(tmp_path, monkeypatch):
    monkeypatch.setattr(spool_module, "MAX_DEAD", 3)
    for _ in range(2):  # numbers begin anew
        with Spool(tmp_path) as spool:
            for number in range(4):
                fill(spool, number)
                spool.bury(spool.numbers[-1], f"STALE: {number}")
    dead = tmp_path / "dead"
    assert len(list(dead.glob("*.episode"))) == 3
    assert sorted(p.read_text() for p in dead.glob("*.txt")) == [f"STALE: {n}\n" for n in (1, 2, 3)]


def test_one_actor_uses_a_spool(tmp_path):
    with Spool(tmp_path), pytest.raises(ConfigError, match="Another actor uses the spool"):
        Spool(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"can't be used: .*--spool"):
        Spool(tmp_path / "file" / "spool")
