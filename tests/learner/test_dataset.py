"""Recorded episodes: what is written is read, also from a stream, and what is damaged is named."""

import dataclasses
import hashlib
import io
import json
import os
import shutil
import threading

import numpy as np
import pytest

from common import record
from common.codec import EpisodeSpec, encode_episode
from common.errors import ConfigError, WireError
from common.types import Ending
from learner import dataset_tools
from learner.dataset import Dataset, Writer, image_path, read_episodes
from tests.episodes import episode

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=64)
PNG = b"\x89PNG\r\n\x1a\n"


def made(seq, screens=(), **options):
    return dataclasses.replace(episode(3, seq=seq, **options), screens=screens)


def write(folder, *episodes, spec=SPEC, tokenizer="{}"):
    with Writer(folder, spec, tokenizer) as writer:
        for one in episodes:
            writer.write(one)
    return Dataset(folder)


def same(a, b):
    for name, one, other in zip(a.trajectory._fields, a.trajectory, b.trajectory, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert one.dtype == other.dtype
    return dataclasses.replace(a, trajectory=None) == dataclasses.replace(b, trajectory=None)


def test_what_is_written_is_read(tmp_path):
    kinds = [made(0), made(1, ending=Ending.TRUNCATED), made(2, success=False)]
    found = [recorded.episode for recorded in write(tmp_path / "d", *kinds)]
    assert all(same(a, b) for a, b in zip(kinds, found, strict=True))


def test_a_screen_is_one_file_named_by_its_content_wherever_the_folder_goes(tmp_path):
    a, b = PNG + b"a", PNG + b"b"
    write(tmp_path / "d", made(0, (a, b, a)), made(1, (b, b, b)))
    shutil.move(tmp_path / "d", tmp_path / "elsewhere")
    dataset = Dataset(tmp_path / "elsewhere")
    records = list(dataset)
    assert [dataset.screens(recorded) for recorded in records] == [(a, b, a), (b, b, b)]
    assert records[0].images[0] == hashlib.sha256(a).hexdigest() + ".png"
    files = [path for path in (tmp_path / "elsewhere" / "images").rglob("*") if path.is_file()]
    assert len(files) == 2
    assert str(tmp_path).encode() not in dataset.segments()[0].read_bytes()
    assert list(dataset.problems()) == []


def test_it_is_read_from_a_pipe_while_it_is_written(tmp_path):
    (path,) = write(tmp_path / "d", made(0), made(1)).segments()
    raw, first = path.read_bytes(), ends(path)[0]
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb") as sink:
        feeder = threading.Thread(target=lambda: (sink.write(raw[first:]), sink.close()))
        sink.write(raw[:first])
        sink.flush()
        records = read_episodes(stream, SPEC)
        assert next(records).episode.seq == 0  # the second is not there yet
        feeder.start()
        assert next(records).episode.seq == 1
        assert next(records, None) is None
        feeder.join()


def test_writers_side_by_side_have_files_of_their_own(tmp_path):
    with Writer(tmp_path, SPEC, "{}") as one, Writer(tmp_path, SPEC, "{}") as other:
        for seq in range(0, 6, 2):
            one.write(made(seq))
            other.write(made(seq + 1))
    assert sorted(recorded.episode.seq for recorded in Dataset(tmp_path)) == list(range(6))
    assert len(Dataset(tmp_path).segments()) == 2


def test_a_new_file_comes_after_the_others_also_where_one_was_removed(tmp_path):
    for seq in range(3):
        write(tmp_path, made(seq))
    Dataset(tmp_path).segments()[0].unlink()
    write(tmp_path, made(3))
    assert [recorded.episode.seq for recorded in Dataset(tmp_path)] == [1, 2, 3]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    with Writer(tmp_path, SPEC, "{}") as writer:
        (tmp_path / "images").write_text("in the way")
        with pytest.raises(ConfigError, match="can't be written"):
            writer.write(made(0, (PNG,) * 3))
        assert writer.count == 0


def ends(path):
    """Where each record of a file ends."""
    with path.open("rb") as stream:
        return [stream.tell() for _ in iter(lambda: record.read(stream), None)]


@pytest.mark.parametrize("left", [1, 200, -1])
def test_what_a_killed_writer_left_is_left_out_and_named(tmp_path, left, caplog):
    (path,) = write(tmp_path, made(0), made(1)).segments()
    raw, first = path.read_bytes(), ends(path)[0]
    path.write_bytes(raw[: first + left] if left > 0 else raw[:left])
    dataset = Dataset(tmp_path)
    assert [recorded.episode.seq for recorded in dataset] == [0]
    assert "its last record, number 1, is not whole" in caplog.text
    assert ["last record, number 1" in problem for problem in dataset.problems()] == [True]
    write(tmp_path, made(2))  # goes on in a file of its own
    assert [recorded.episode.seq for recorded in dataset] == [0, 2]


@pytest.mark.parametrize("at", [0, 14, 30, -3])
def test_a_damaged_record_is_named(tmp_path, at):
    (path,) = write(tmp_path, made(0), made(1)).segments()
    raw, first = bytearray(path.read_bytes()), ends(path)[0]
    raw[at if at >= 0 else first + at] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match="Record 0 is damaged") as error:
        list(Dataset(tmp_path))
    assert str(path) in str(error.value)
    assert "Record 0 is damaged" in "".join(Dataset(tmp_path).problems())


def test_random_bytes_are_refused_and_never_anything_else(tmp_path):
    (path,) = write(tmp_path, made(0)).segments()
    raw, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(raw)
        for at in rng.integers(0, len(raw), rng.integers(1, 4)):
            broken[at] = rng.integers(256)
        with pytest.raises((WireError, EOFError)):
            list(read_episodes(io.BytesIO(broken[: rng.integers(1, len(raw))]), SPEC))


def test_a_missing_screen_and_a_changed_one_are_named(tmp_path):
    dataset = write(tmp_path, made(0, (PNG + b"a", PNG + b"b", PNG + b"b")))
    first, second, _ = next(iter(dataset)).images
    image_path(tmp_path, first).unlink()
    image_path(tmp_path, second).write_bytes(PNG + b"c")
    problems = sorted(dataset.problems(), key=lambda p: "not the one" in p)
    assert len(problems) == 2
    assert f"the screen {first} can't be read" in problems[0]
    assert f"the screen {second} is not the one that was recorded" in problems[1]


def test_names_of_screens_cannot_lead_out_of_the_folder(tmp_path):
    name = "../" * 21 + "x.png"
    frames = encode_episode(made(0), images=[name] * 3)
    with pytest.raises(WireError, match="is no screen's name"):
        list(read_episodes(io.BytesIO(record.pack(0, frames)), SPEC))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "of the format 'distrl-episodes', version 2; this program reads"),
        ({"format": "other"}, "of the format 'other'"),
        ({"spec": {"prompt_length": 8}}, "'spec' must hold"),
    ],
)
def test_another_format_is_refused_by_name(tmp_path, change, message):
    write(tmp_path, made(0))
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=message):
        Dataset(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.json is missing"):
        Dataset(tmp_path)
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(ConfigError, match="holds other files"):
        Writer(tmp_path, SPEC, "{}")


def test_another_model_or_tokenizer_is_refused(tmp_path):
    write(tmp_path, made(0))
    with pytest.raises(ConfigError, match="have prompt_length 8, not 9"):
        Writer(tmp_path, SPEC._replace(prompt_length=9), "{}")
    with pytest.raises(ConfigError, match="another tokenizer"):
        Writer(tmp_path, SPEC, "[]")


def test_merging_takes_each_episode_once_with_its_screens(tmp_path):
    write(tmp_path / "a", made(0, (PNG,) * 3), made(1))
    write(tmp_path / "b", made(1), made(2, success=False))
    for expected in ((3, 1), (0, 4)):
        assert dataset_tools.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m") == expected
    dataset = Dataset(tmp_path / "m")
    assert [recorded.episode.seq for recorded in dataset] == [0, 1, 2]
    assert dataset.screens(next(iter(dataset))) == (PNG,) * 3
    with pytest.raises(ConfigError, match="is among what is to be merged"):
        dataset_tools.merge([tmp_path / "a"], tmp_path / "a")


def test_statistics_and_plain_texts(tmp_path):
    dataset = write(tmp_path, made(0, (PNG,) * 3), made(1, success=False))
    numbers = json.loads(json.dumps(dataset_tools.statistics(dataset)))
    assert (numbers["episodes"], numbers["steps"], numbers["screens"]) == (2, 6, 1)
    assert numbers["endings"] == {"success": 1, "horizon": 1}
    assert numbers["by_source"] == {"policy": {"success": 0.5, "n": 2}}
    plain = json.loads(json.dumps(dataset_tools.plain(next(iter(dataset)))))
    assert plain["ending"] == "success" and len(plain["steps"]) == 3
    assert plain["steps"][-1]["reward"] == 1.0 and plain["steps"][0]["action"] == "action"
    assert plain["steps"][0]["log_prob"] == pytest.approx(-0.5)  # five tokens of -.1
    assert (tmp_path / plain["steps"][0]["screen"]).read_bytes() == PNG
