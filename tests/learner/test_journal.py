"""The journal: what was committed is read back, whatever happened to the process that wrote it."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from common import errors, messages
from learner.journal import Journal, JournalFullError, Reader
from learner.ledger import EpisodeId

NOTHING = np.zeros(0, np.int64)


def frames(seq, size=100, boot="b"):
    fields = {"actor": "a", "boot": boot, "seq": seq}
    return messages.pack("EPISODE", fields, bytes([seq % 256]) * size)


def write(journal, *numbers, size=100, boot="b"):
    for seq in numbers:
        journal.append(EpisodeId("a", boot, seq), frames(seq, size, boot))
    return journal.commit()


def read(folder, count, position=0):
    with Reader(folder, position) as reader:
        found = [reader.read() for _ in range(count)]
    return [(one.number, messages.unpack(one.frames)[0].integer("seq")) for one in found]


def test_what_was_committed_is_read_back_and_known(tmp_path):
    with Journal(tmp_path) as journal:
        assert write(journal, 0, 1, 2) == 3 and write(journal) == 0
        journal.append(EpisodeId("a", "b", 9), frames(9))
        assert EpisodeId("a", "b", 9) in journal and EpisodeId("a", "b", 9) not in journal.ledger
    with Journal(tmp_path) as journal:  # 9 was not committed
        assert journal.end == 3 and EpisodeId("a", "b", 9) not in journal
        assert all(EpisodeId("a", "b", seq) in journal for seq in range(3))
        write(journal, 3)
        assert read(tmp_path, 4) == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert read(tmp_path, 2, position=2) == [(2, 2), (3, 3)]


def test_a_reader_follows_the_writer(tmp_path):
    with Journal(tmp_path, segment_bytes=400) as journal, Reader(tmp_path) as reader:
        for seq in range(30):
            write(journal, seq)
            found = reader.read()
            assert (found.number, found.frames) == (seq, frames(seq)) and reader.position == seq + 1
        assert len(list(tmp_path.glob("*.journal"))) > 5


@pytest.mark.parametrize("lost", [1, 25, 150])
def test_a_torn_end_is_cut_off_and_said(tmp_path, lost, caplog):
    with Journal(tmp_path) as journal:
        write(journal, 0, 1)
    (segment,) = tmp_path.glob("*.journal")
    os.truncate(segment, segment.stat().st_size - lost)  # a record has 157 bytes
    with Journal(tmp_path) as journal:
        assert journal.end == 1 and EpisodeId("a", "b", 1) not in journal
        assert ("Cut " in caplog.text) == (lost != len(pack_of(1)))
        write(journal, 1, 2)
        assert read(tmp_path, 3) == [(0, 0), (1, 1), (2, 2)]
    with Journal(tmp_path) as journal:
        assert journal.end == 3


def pack_of(seq):
    from common import record

    return record.pack(seq, frames(seq))


def test_segments_that_nobody_needs_are_deleted_and_their_ids_remembered(tmp_path):
    with Journal(tmp_path, segment_bytes=400) as journal:
        for seq in range(40):
            write(journal, seq)
        before = len(list(tmp_path.glob("*.journal")))
        assert journal.retain(NOTHING, 0) == 0
        live = np.array([0, 21])
        assert journal.retain(live, 30) > 3
        assert set(live) < {number for number, _ in read_all(tmp_path)}
        assert [number for number, _ in read_all(tmp_path) if number >= 30] == list(range(30, 40))
        assert len(list(tmp_path.glob("*.journal"))) < before
        journal.retain(NOTHING, 40)
        assert len(list(tmp_path.glob("*.journal"))) == 1
    with Journal(tmp_path) as journal:
        assert journal.end == 40
        assert all(EpisodeId("a", "b", seq) in journal for seq in range(40))


def read_all(folder):
    with Reader(folder) as reader:
        return [(found.number, found.frames) for found in iter(reader.read, None)]


def test_random_operations_agree_with_a_list(tmp_path):
    rng, twin, live, upto = np.random.default_rng(0), [], set(), 0
    journal = Journal(tmp_path, segment_bytes=1000)
    for _ in range(150):
        match rng.integers(4):
            case 0 | 1:
                group = range(len(twin), len(twin) + int(rng.integers(1, 6)))
                write(journal, *group, size=int(rng.integers(300)))
                twin += group
            case 2 if twin:
                kept = [*live, *range(upto, len(twin))]
                live = {int(n) for n in rng.choice(kept, min(3, len(kept)), replace=False)}
                upto = int(rng.integers(upto, len(twin) + 1))
                live = {n for n in live if n < upto}
                journal.retain(np.array(sorted(live), np.int64), upto)
            case 3:
                journal.close()
                journal = Journal(tmp_path, segment_bytes=1000)
        assert journal.end == len(twin)
        found = {number for number, _ in read_all(tmp_path)}
        assert found >= live | set(range(upto, len(twin)))
        assert all(EpisodeId("a", "b", n) in journal for n in twin[:: max(len(twin) // 9, 1)])
    journal.close()


def test_a_full_disk_keeps_nothing_of_the_group_and_a_later_one_whole(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path) as journal:
        write(journal, 0)
        try:  # stands for a full disk: the write takes a part, and then fails
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
            with pytest.raises(JournalFullError, match="has no room"):
                write(journal, 1, 2, size=1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert journal.end == 1 and EpisodeId("a", "b", 1) not in journal
        write(journal, 2, 1)
        assert read(tmp_path, 3) == [(0, 0), (1, 2), (2, 1)]
    with Journal(tmp_path) as journal:
        assert journal.end == 3


def test_a_disk_that_is_full_when_a_segment_begins(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path, segment_bytes=100) as journal:
        write(journal, 0)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
            with pytest.raises(JournalFullError):
                write(journal, 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        write(journal, 1)
    assert len(list(tmp_path.iterdir())) == 3  # two segments and the lock
    assert [number for number, _ in read_all(tmp_path)] == [0, 1]


def test_one_process_writes_a_journal(tmp_path):
    with Journal(tmp_path), pytest.raises(errors.ConfigError, match="Another learner writes"):
        Journal(tmp_path)


def test_a_damaged_segment_is_named_and_can_be_done_without(tmp_path):
    with Journal(tmp_path, segment_bytes=200) as journal:
        for seq in range(6):
            write(journal, seq)
    first = min(tmp_path.glob("*.journal"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=rf"{first} is damaged at byte \d+\. .*delete it"):
        read_all(tmp_path)
    first.unlink()
    assert [number for number, _ in read_all(tmp_path)] == [2, 3, 4, 5]


WRITER = """
import pathlib, sys
from tests.learner.test_journal import write
from learner.journal import Journal
with Journal(pathlib.Path(sys.argv[1]), segment_bytes=20_000) as journal:
    while True:
        end = journal.end
        write(journal, *range(end, end + 1 + end % 5), size=3000)
        print(journal.end, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_committed(tmp_path):
    promised = 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(pathlib.Path.cwd())},
        )
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        lines = process.communicate()[0].split()
        promised = int(lines[-1]) if lines else promised
        with Journal(tmp_path) as journal:
            assert journal.end >= promised
            assert read(tmp_path, journal.end) == [(n, n) for n in range(journal.end)]
            assert EpisodeId("a", "b", journal.end) not in journal


def test_numbers_that_the_learner_has_read_are_not_given_again(tmp_path, caplog):
    with Journal(tmp_path, position=7) as journal:  # someone deleted it
        assert journal.end == 7
        write(journal, 0, 1)
    with Journal(tmp_path, position=20) as journal:  # or the newest segment
        assert "lost its records 9 to 19" in caplog.text
        write(journal, 2)
        assert EpisodeId("a", "b", 1) in journal
    assert read(tmp_path, 1, position=20) == [(20, 2)]
    assert read(tmp_path, 3, position=7) == [(7, 0), (8, 1), (20, 2)]
