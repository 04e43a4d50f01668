"""The data socket's process: it dies and comes back, and nothing of it is lost."""

import dataclasses
import os
import pathlib
import signal
import time

import pytest

from actors import client as client_module
from actors import outbox
from actors.client import LearnerClient
from actors.spool import Spool
from common.channel import Mode
from common.codec import EpisodeSpec
from common.errors import ConfigError, DistRLError
from learner import child
from learner.feed import Feed
from learner.ingest_process import MEMORY_BYTES, IngestProcess
from tests.episodes import episode

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=4096)
WELCOME = {"run": "r", "params_port": 1, "settings": {}, "heartbeat_s": 0.05}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(outbox, "RESEND_S", 0.5)
    monkeypatch.setattr(client_module, "HELLO_AGAIN_S", 0.2)
    monkeypatch.setattr(child, "BACKOFF_S", 0.01)


@pytest.fixture
def ingest(tmp_path):
    with started(tmp_path) as ingest:
        yield ingest


def started(folder, address="tcp://127.0.0.1:0"):
    return IngestProcess(folder / "journal", address, SPEC, WELCOME, "tok")


def kill(ingest):
    os.kill(ingest.pid, signal.SIGKILL)


def test_it_is_killed_and_nothing_is_lost_or_doubled(ingest, tmp_path):
    address = f"tcp://127.0.0.1:{ingest.port}"
    with (
        Feed(tmp_path / "journal", SPEC) as feed,
        Spool(tmp_path / "spool") as spool,
        LearnerClient(address, "test", "b", "d", False, spool) as client,
    ):
        ingest.set_pulse(3, 4, Mode.EXPLORE)
        client.connect(10)
        arrived, sent, deadline = [], 0, time.monotonic() + 30
        while len(arrived) < 40:
            assert time.monotonic() < deadline
            if sent < 40 and client.waiting < 5:
                made = episode(2, seq=sent, vocab=4096)
                client.send(dataclasses.replace(made, boot="b"))
                sent += 1
                if sent in (10, 25):
                    kill(ingest)
            client.poll(0.01)
            arrived += feed.take(ingest.wait(feed.position, 0.0))
            ingest.consumed(feed.position)
        assert [one.episode.seq for one in arrived] == list(range(40))
        # The last process was told again what the first had been.
        while client.pulse.version != (3, 4) or not ingest.actors or client.waiting:
            assert time.monotonic() < deadline
            client.heartbeat("acting")
            client.poll(0.05)
            ingest.wait(40, 0.05)
        assert client.pulse.mode is Mode.EXPLORE
        assert ingest.actors["test"]["state"] == "acting" and ingest.counters["restarts"] == 2


def test_it_has_a_limit_of_memory_and_ends_with_its_owner(ingest):
    limits = pathlib.Path(f"/proc/{ingest.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max data size"))
    assert line.split()[3:5] == [str(MEMORY_BYTES)] * 2
    os.kill(ingest.pid, signal.SIGTERM)  # is meant for the learner
    ingest.close()
    assert ingest._child._process.returncode == 0
    ingest.close()


def test_beyond_its_restarts_it_ends_the_learner(ingest, monkeypatch):
    monkeypatch.setattr(child, "RESTARTS", 1)
    with pytest.raises(DistRLError, match="exit code -9 after 1 restarts"):
        for _ in range(200):
            kill(ingest)
            ingest.wait(0, 0.02)


def test_what_keeps_it_from_starting_is_said(ingest, tmp_path):
    with pytest.raises(ConfigError, match="in use"):
        started(tmp_path / "other", f"tcp://127.0.0.1:{ingest.port}")
    with pytest.raises(ConfigError, match="Another learner writes"):
        started(tmp_path)
