"""Parameters are served by a process that may die."""

import contextlib
import functools
import os
import pathlib
import signal
import time

import numpy as np
import pytest

from actors import download
from actors.cache import Cache
from actors.download import ParameterReader
from common import channel
from common.errors import ConfigError, DistRLError
from common.types import Version
from learner import child
from learner.publish_process import PublisherProcess


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(download, "ASK_AGAIN_S", 0.3)
    monkeypatch.setattr(child, "BACKOFF_S", 0.05)


def params(seed):
    return {"w": np.full((30, 20), seed, np.float32)}


@contextlib.contextmanager
def reading(publisher, folder):
    owner = channel.context()
    connect = functools.partial(channel.dealer, owner)
    reader = ParameterReader(connect, f"tcp://127.0.0.1:{publisher.port}", Cache(folder))
    try:
        yield reader
    finally:
        reader.close()
        owner.term()


def fetched(reader, version, publisher):
    """Fetches until that version comes; returns its leaf."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        publisher.check()
        found = reader.fetch(None, "float32", 0.5, lambda: None)
        if found is not None and found[0] == version:
            return found[1]["w"][0, 0]
    raise AssertionError(f"{version} didn't come")


def test_it_serves_again_after_it_was_killed(tmp_path):
    with PublisherProcess("tcp://127.0.0.1:0", tmp_path / "p") as publisher:
        publisher.publish_base({"frozen": np.ones(5, np.float32)}, 1)
        for step in range(1, 5):
            publisher.publish(params(step), Version(1, step))
        assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
            "1-0.blob",
            "1-3.blob",
            "1-4.blob",
        ]
        with reading(publisher, tmp_path / "one") as reader:
            assert fetched(reader, Version(1, 4), publisher) == 4
            before = publisher.pid
            os.kill(before, signal.SIGKILL)
            with reading(publisher, tmp_path / "two") as another:  # which has nothing yet
                assert fetched(another, Version(1, 4), publisher) == 4
            assert publisher.pid != before
            publisher.publish(params(5), Version(1, 5))
            assert fetched(reader, Version(1, 5), publisher) == 5


def test_one_that_dies_again_and_again_ends_the_learner(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "RESTARTS", 1)
    with (
        PublisherProcess("tcp://127.0.0.1:0", tmp_path / "p") as publisher,
        pytest.raises(DistRLError, match="The parameters' process ended with exit code -9"),
    ):
        for _ in range(200):
            with contextlib.suppress(ProcessLookupError):
                os.kill(publisher.pid, signal.SIGKILL)
            publisher.check()
            time.sleep(0.02)


def test_it_ends_with_its_owner_and_leaves_the_port(tmp_path):
    with (
        PublisherProcess("tcp://127.0.0.1:0", tmp_path / "p") as publisher,
        pytest.raises(ConfigError, match="the port is in use"),
    ):
        PublisherProcess(f"tcp://127.0.0.1:{publisher.port}", tmp_path / "q")
    assert not pathlib.Path(f"/proc/{publisher.pid}").exists()
    with PublisherProcess(f"tcp://127.0.0.1:{publisher.port}", tmp_path / "p"):
        pass
