"""Parameters come to a host once, whole, and survive whatever ends the actor that fetches them."""

import contextlib
import functools
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from actors import cache as cache_module
from actors import download
from actors.cache import Cache
from actors.download import ParameterReader
from common import channel
from common.errors import ConfigError, WireError
from common.types import Version
from learner.publish import Publisher

ROOT = pathlib.Path(__file__).parents[2]
CHUNKS = 10  # of what `params` makes, in float32


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(download, "ASK_AGAIN_S", 0.3)


@pytest.fixture
def publisher():
    with Publisher("tcp://127.0.0.1:0", chunk_bytes=1000).start() as publisher:
        yield publisher


@pytest.fixture
def make_reader(publisher, tmp_path):
    """Returns readers, each as another actor of this host would have it."""
    with contextlib.ExitStack() as stack:

        def make(folder=tmp_path / "cache", port=publisher.port):
            owner = channel.context()
            stack.callback(owner.term)
            connect = functools.partial(channel.dealer, owner)
            reader = ParameterReader(connect, f"tcp://127.0.0.1:{port}", Cache(folder))
            stack.callback(reader.close)
            return reader

        yield make


def fetch(reader, known=None, timeout_s=5.0):
    return reader.fetch(known, "float32", timeout_s, lambda: None)


def params(seed, size=2500):
    rng = np.random.default_rng(seed)
    return {"layer": {"w": rng.normal(size=(size,)).astype(np.float32)}}


def check(fetched, seed):
    assert fetched is not None
    np.testing.assert_array_equal(fetched[1]["layer"]["w"], params(seed)["layer"]["w"])


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def slow(publisher, monkeypatch, delay_s):
    original = publisher._chunk
    monkeypatch.setattr(publisher, "_chunk", lambda *a: time.sleep(delay_s) or original(*a))


def test_actors_of_one_host_download_once_and_map_one_file(publisher, make_reader, monkeypatch):
    publisher.publish(params(0), Version(0, 0), "float32")
    slow(publisher, monkeypatch, 0.02)
    readers, got = [make_reader() for _ in range(4)], {}

    def work(index):
        got[index] = fetch(readers[index])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(4):
        check(got[index], 0)
    assert publisher.counters["chunks"] == CHUNKS


def test_what_was_fetched_outlives_its_file(publisher, make_reader, tmp_path):
    publisher.publish(params(0), Version(0, 0), "float32")
    reader = make_reader()
    first = fetch(reader)
    publisher.publish(params(1), Version(0, 1), "float32")
    check(fetch(reader, Version(0, 0)), 1)
    assert len(files(tmp_path / "cache")) == 1  # the new one
    check(first, 0)
    assert not first[1]["layer"]["w"].flags.writeable


FETCHING = """
import functools, pathlib, sys
from actors.cache import Cache
from actors.download import ParameterReader
from common import channel
connect = functools.partial(channel.dealer, channel.context())
reader = ParameterReader(connect, sys.argv[1], Cache(pathlib.Path(sys.argv[2])))
reader.fetch(None, "float32", 60, lambda: None)
"""


def test_a_killed_actor_s_download_is_gone_on_with(publisher, make_reader, tmp_path, monkeypatch):
    publisher.publish(params(0), Version(0, 0), "float32")
    slow(publisher, monkeypatch, 0.1)
    address = f"tcp://127.0.0.1:{publisher.port}"
    process = subprocess.Popen(
        [sys.executable, "-c", FETCHING, address, str(tmp_path / "cache")], cwd=ROOT
    )
    try:
        deadline = time.monotonic() + 20
        while publisher.counters.get("chunks", 0) < 8:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = publisher.counters["chunks"]  # of which some never arrived
    check(fetch(make_reader()), 0)
    assert publisher.counters["chunks"] - before <= CHUNKS - (before - download.CREDIT)
    assert len(files(tmp_path / "cache")) == 1


def test_a_hung_actor_does_not_stop_the_others(publisher, make_reader, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "STALLED_S", 0.2)
    publisher.publish(params(0), Version(0, 0), "float32")
    manifest = publisher._blobs[Version(0, 0)].manifest
    with contextlib.closing(
        Cache(tmp_path / "cache").claim(f"{manifest.sha256}.float32", manifest)
    ):
        check(fetch(make_reader()), 0)


def adapted(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((40, 2), (2, 30)))
    return {"q": {"lora_a": a, "lora_b": b}, "gate": np.float32(seed)}


BASE = {
    "q": {"kernel": np.random.default_rng(9).normal(size=(40, 30)).astype(np.float32)},
    "embed": np.random.default_rng(8).normal(size=(50, 10)).astype(np.float32),
}


def test_a_base_outlives_learner_and_actor_and_adapters_come_merged(publisher, make_reader):
    publisher.publish_base(BASE, 1, "float32")
    publisher.publish(adapted(1), Version(1, 1), "float32")
    assert fetch(make_reader())[0] == Version(1, 1)
    with Publisher("tcp://127.0.0.1:0", chunk_bytes=1000).start() as second:
        second.publish_base(BASE, 2, "float32")
        second.publish(adapted(2), Version(2, 2), "float32")
        _, got = fetch(make_reader(port=second.port))
        assert second.counters["chunks"] == 1
    a, b = adapted(2)["q"].values()
    np.testing.assert_allclose(got["q"]["kernel"], BASE["q"]["kernel"] + a @ b, atol=1e-6)
    np.testing.assert_array_equal(got["embed"], BASE["embed"])
    assert got.keys() == {"q", "embed", "gate"} and got["q"].keys() == {"kernel"}


def test_adapters_of_another_base_are_refused(publisher, make_reader):
    publisher.publish_base({"other": np.zeros(3, np.float32)}, 1, "float32")
    publisher.publish(adapted(1), Version(1, 1), "float32")
    with pytest.raises(WireError, match="BAD_SCHEMA"):
        fetch(make_reader())


@pytest.mark.parametrize("damage", ["flipped", "torn", "empty"])
def test_a_file_that_a_crash_left_damaged_is_fetched_again(
    publisher, make_reader, tmp_path, damage
):
    publisher.publish(params(0), Version(0, 0), "float32")
    fetch(make_reader())
    (path,) = (tmp_path / "cache").iterdir()
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.chmod(0o600)
    path.write_bytes({"flipped": data, "torn": data[:5000] + bytes(5000), "empty": b""}[damage])
    before = time.time() - 60  # younger than the actor, it would be the work of one that lives
    os.utime(path, (before, before))
    check(fetch(make_reader()), 0)
    assert publisher.counters["chunks"] == 2 * CHUNKS


def test_a_part_that_does_not_fit_its_digests_is_fetched_again(publisher, make_reader, tmp_path):
    publisher.publish(params(0), Version(0, 0), "float32")
    sha256 = publisher._blobs[Version(0, 0)].manifest.sha256
    reader = make_reader()
    (tmp_path / "cache" / f"{sha256}.float32.part").write_bytes(bytes(7000))
    check(fetch(reader), 0)


def test_the_folder_keeps_to_its_limit_and_keeps_what_is_in_use(tmp_path):
    cache = Cache(tmp_path / "c", limit_bytes=2500)
    names = [f"{digit * 64}.float32" for digit in "abcd"]
    for age, name in enumerate([*names, "letter.txt"]):
        path = tmp_path / "c" / name
        path.write_bytes(bytes(1000))
        os.utime(path, (1000 - age, 1000 - age))
    cache.prune({names[3]})
    assert files(tmp_path / "c") == [names[0], names[3], "letter.txt"]  # which is not ours


def test_a_full_disk_is_a_sentence(publisher, make_reader):
    publisher.publish(params(0), Version(0, 0), "float32")
    reader = make_reader()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"File too large.*--cache"):
            fetch(reader)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    check(fetch(reader), 0)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"Not a directory.*--cache"):
        Cache(tmp_path / "file" / "cache")
