"""Records: what was written comes back, and no damage goes unnoticed."""

import io

import pytest

from common import files, messages, record

FRAMES = messages.pack("X", {"a": 1}, b"body")


def test_records_follow_each_other_and_then_the_file_ends():
    file = io.BytesIO(record.pack(7, FRAMES) + record.pack(8, [b"", b""]))
    assert record.read(file) == (7, FRAMES)
    assert record.read(file) == (8, [b"", b""])
    assert record.read(file) is None


def test_a_torn_record_is_noticed_wherever_it_ends():
    whole = record.pack(7, FRAMES)
    for size in range(1, len(whole)):
        with pytest.raises(record.DamagedError):
            record.read(io.BytesIO(whole[:size]))


def test_every_flipped_bit_is_noticed():
    whole = record.pack(7, FRAMES)
    for bit in range(8 * len(whole)):
        altered = bytearray(whole)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(record.DamagedError):
            record.read(io.BytesIO(altered))


def test_a_durable_file_is_there_whole_or_as_before(tmp_path, monkeypatch):
    path = tmp_path / "x"
    files.write_durably(path, b"old")

    def fail(descriptor):
        raise OSError("no")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError):
        files.write_durably(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_locked_once(tmp_path):
    first = files.lock(tmp_path)
    assert files.lock(tmp_path) is None
    first.close()
    files.lock(tmp_path).close()
