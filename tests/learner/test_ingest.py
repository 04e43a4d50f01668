"""The data socket against raw peers: every message has an answer and nothing stops it."""

import contextlib
import dataclasses
import errno
import os
import threading
import time

import numpy as np
import pytest
import zmq

from common import channel, messages
from common.channel import Kind, Mode
from common.codec import EpisodeSpec, encode_episode
from common.errors import ConfigError, WireError
from learner import ingest as ingest_module
from learner import offenders
from learner.ingest import Ingest
from learner.journal import Journal, Reader
from tests.episodes import episode

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=4096)
WELCOME = {"run": "r", "params_port": 1, "settings": {"horizon": 10}}
HELLO = {"actor": "test", "boot": "b", "device": "d", "can_demonstrate": True}


class Peer:
    """A DEALER that asks and waits for the answer."""

    def __init__(self, port):
        self._context = zmq.Context()
        self.socket = channel.dealer(self._context, f"tcp://127.0.0.1:{port}")
        self.socket.setsockopt(zmq.IMMEDIATE, 0)

    def ask(self, frames):
        self.socket.send_multipart(frames)
        assert self.socket.poll(5000), "no answer"
        return messages.unpack(self.socket.recv_multipart())

    def hello(self, **fields):
        return self.ask(messages.pack(Kind.HELLO, HELLO | fields))

    def deliver(self, number, **changes):
        made = dataclasses.replace(episode(2, seq=number, vocab=4096), **changes)
        return self.ask(encode_episode(made, run="r"))[0]

    def close(self):
        self.socket.close(0)
        self._context.term()


def is_ack(header, seq):
    return (header.type, header.text("boot"), header.integer("seq")) == (Kind.ACK, "b", seq)


@pytest.fixture
def serving(tmp_path):
    """Serves the journal in the test's folder: again, as after a restart, when called again."""

    @contextlib.contextmanager
    def serve(welcome=WELCOME, address="tcp://127.0.0.1:0", **options):
        with (
            Journal(tmp_path / "journal") as journal,
            Ingest(address, SPEC, welcome, journal, b"tok", **options).start() as ingest,
            contextlib.closing(Peer(ingest.port)) as peer,
        ):
            yield ingest, peer

    return serve


@pytest.fixture
def stored(tmp_path):
    """Returns the numbers of the committed episodes, in order."""

    def numbers(ingest):
        with Reader(tmp_path / "journal") as reader:
            records = [reader.read() for _ in range(ingest.wait(0, 0.0))]
        return [messages.unpack(found.frames)[0].integer("seq") for found in records]

    return numbers


def test_welcome_says_what_an_actor_needs(serving):
    with serving() as (ingest, peer):
        ingest.set_pulse(3, 9, Mode.DEMONSTRATE)
        header, body = peer.hello()
        assert header.type == Kind.WELCOME and body == b"tok"
        assert header.get("settings", dict) == {"horizon": 10}
        assert header.integer("params_port") == 1 and header.text("mode") == "demonstrate"
        assert (header.integer("lineage"), header.integer("version")) == (3, 9)


def test_a_stranger_has_to_say_hello_first(serving):
    with serving() as (ingest, peer):
        assert peer.deliver(0).type == Kind.UNKNOWN_PEER
        peer.hello()
        assert is_ack(peer.deliver(0), 0)
        assert ingest.counters["unknown_peers"] == 1 and ingest.wait(0, 0) == 1


def test_duplicates_are_acknowledged_and_kept_once(serving, stored):
    with serving() as (ingest, peer):
        peer.hello()
        for number in (0, 2, 0, 1, 2, 1, 3, 0):
            assert is_ack(peer.deliver(number), number)
        assert stored(ingest) == [0, 2, 1, 3]
        assert ingest.counters["duplicates"] == 4 and ingest.counters["accepted"] == 4
        assert peer.deliver(0, boot="another").type == Kind.ACK
        assert stored(ingest) == [0, 2, 1, 3, 0]


def test_malformed_messages_are_counted_by_code_and_the_next_episode_accepted(serving, stored):
    with serving() as (ingest, peer):
        peer.hello()
        bad = {
            "BAD_FRAMES": [b"x"],
            "BAD_HEADER": [b"\xc1", b""],
            "TOO_LARGE": [bytes(70_000), b""],
            "BAD_SCHEMA": messages.pack("NONSENSE", {}),
            "BAD_VALUE": encode_episode(episode(2, seq=4094, vocab=4096), run="r"),
        }
        for code, frames in bad.items():
            header, _ = peer.ask(frames)
            assert (header.type, header.text("code")) == (Kind.REFUSE, code)
            assert ingest.counters[f"refused/{code}"] == 1
        assert header.integer("seq") == 4094  # a refused episode is named
        assert ingest.counters["refused"] == len(bad)
        assert is_ack(peer.deliver(0), 0)
        assert stored(ingest) == [0]


def test_an_actor_cannot_send_what_only_files_hold(serving, stored):
    made = episode(2)
    made.trajectory.version[:] = -1
    with serving() as (ingest, peer):
        peer.hello()
        frames = encode_episode(dataclasses.replace(made, source="recorded"), run="r")
        header, _ = peer.ask(frames)
        assert (header.type, header.text("code")) == (Kind.REFUSE, "BAD_VALUE")
        assert stored(ingest) == []


def test_noise_does_not_stop_the_thread(serving, monkeypatch):
    monkeypatch.setattr(offenders, "PARK_AFTER", 10**9)
    rng = np.random.default_rng(0)
    with serving() as (ingest, peer):
        peer.hello()
        for _ in range(300):
            header, _ = peer.ask(
                [rng.bytes(int(n)) for n in rng.integers(0, 50, rng.integers(1, 5))]
            )
            assert header.type == Kind.REFUSE
        assert is_ack(peer.deliver(0), 0)
        assert ingest.counters["refused"] == 300


def test_who_sends_nonsense_again_and_again_is_not_listened_to(serving, monkeypatch, caplog):
    monkeypatch.setattr(offenders, "PARK_AFTER", 3)
    with serving() as (ingest, peer):
        peer.hello()
        for _ in range(2):
            assert peer.ask([b"x"])[0].text("code") == "BAD_FRAMES"
        assert is_ack(peer.deliver(0), 0)
        assert peer.ask([b"x"])[0].text("code") == "BAD_FRAMES"
        peer.socket.send_multipart([b"x"])
        peer.socket.send_multipart(encode_episode(episode(2, seq=1), run="r"))
        assert not peer.socket.poll(300)
        assert ingest.counters["parked"] == 2 and ingest.wait(0, 0) == 1
        assert ingest.actors["test"]["refused"] == {"BAD_FRAMES": 3}
        assert "Nothing of actor test is read" in caplog.text
    now = offenders.Offenders()
    for code in ("STALE", "WRONG_RUN") * 9:  # an old spool is no offence
        assert not now.refused("a", code, 0.0)
    assert [now.refused("a", "BAD_VALUE", 0.0) for _ in range(3)] == [False, False, True]
    assert now.is_parked("a", offenders.PARK_S - 1) and not now.is_parked("b", 1.0)
    assert not now.is_parked("a", offenders.PARK_S)


@pytest.mark.parametrize("budget", [{"capacity_episodes": 2}, {"capacity_bytes": 3000}])
def test_over_budget_the_actor_is_told_to_come_again(budget, serving, stored):
    with serving(**budget) as (ingest, peer):
        peer.hello()
        kinds = [peer.deliver(number).type for number in range(4)]
        taken = kinds.count(Kind.ACK)
        assert kinds == [Kind.ACK] * taken + [Kind.RETRY_AFTER] * (4 - taken) and 0 < taken < 4
        assert is_ack(peer.deliver(0), 0)  # a duplicate needs no room
        assert stored(ingest) == list(range(taken))
        ingest.consumed(1)
        assert is_ack(peer.deliver(taken), taken)


def test_heartbeats_and_status_show_the_actor(serving):
    with serving() as (ingest, peer):
        peer.hello()
        beat = {"actor": "test", "boot": "b", "state": "acting", "detail": "step 3", "episodes": 5}
        beat |= {"spooled": 2, "dead": 1}
        header, _ = peer.ask(messages.pack(Kind.HEARTBEAT, beat | {"lineage": 1, "version": 4}))
        assert header.type == Kind.PULSE and header.text("mode") == "wait"
        ingest.set_status({"phase": "rl", "success": np.float32(0.5)})
        status = channel.ask_status(f"tcp://127.0.0.1:{ingest.port}", 5)
        actor = status["actors"]["test"]
        assert (actor["state"], actor["detail"], actor["episodes"]) == ("acting", "step 3", 5)
        assert (actor["spooled"], actor["dead"]) == (2, 1)
        assert actor["version"] == [1, 4] and 0 <= actor["last_seen_s"] < 5
        assert status["learner"] == {"phase": "rl", "success": 0.5}
        assert status["counters"]["heartbeats"] == 1 and status["run"] == "r"
        assert ingest.actors["test"]["can_demonstrate"]


def test_what_was_acknowledged_is_there_after_a_restart_and_known(serving, stored):
    with serving() as (_, peer):
        peer.hello()
        assert is_ack(peer.deliver(0), 0) and is_ack(peer.deliver(1), 1)
    with serving() as (ingest, peer):
        peer.hello()
        assert is_ack(peer.deliver(1), 1) and is_ack(peer.deliver(2), 2)
        assert stored(ingest) == [0, 1, 2] and ingest.counters["duplicates"] == 1


def test_an_episode_is_acknowledged_after_its_commit_and_many_share_one(serving, monkeypatch):
    commits, real = [], os.fdatasync
    with serving() as (ingest, peer):
        peer.hello()
        released = threading.Event()

        def sync(descriptor):
            commits.append(descriptor)
            released.wait(5)
            real(descriptor)

        monkeypatch.setattr(os, "fdatasync", sync)
        for number in range(9):
            peer.socket.send_multipart(encode_episode(episode(2, seq=number, vocab=4096), run="r"))
        assert not peer.socket.poll(200) and ingest.wait(0, 0) == 0
        released.set()
        answers = []
        while len(answers) < 9:
            assert peer.socket.poll(5000)
            answers.append(messages.unpack(peer.socket.recv_multipart())[0])
    assert all(is_ack(header, seq) for seq, header in enumerate(answers))
    assert len(commits) <= 3  # what came during the first waited for the second


def test_a_full_disk_stops_the_acknowledgements_until_there_is_room(
    serving, stored, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setattr(ingest_module, "FULL_WAIT_S", 0.05)
    with serving() as (ingest, peer):
        peer.hello()
        assert is_ack(peer.deliver(0), 0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", no_room)
            assert [peer.deliver(1).type for _ in range(3)] == [Kind.RETRY_AFTER] * 3
            status = channel.ask_status(f"tcp://127.0.0.1:{ingest.port}", 5)
            assert status["journal"] == {"records": 1, "full": True}
            assert is_ack(peer.deliver(0), 0)  # what is on the disk is
        time.sleep(0.1)
        assert is_ack(peer.deliver(1), 1)
        assert stored(ingest) == [0, 1]
    said = [record.message for record in caplog.records if "room" in record.message]
    assert "Episodes are not taken" in said[0] and "room on the disk again" in said[1]
    assert len(said) == 2


def no_room(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_episodes_of_another_run_or_actor_are_refused(serving):
    with serving() as (ingest, peer):
        peer.hello()
        header, _ = peer.ask(encode_episode(episode(2, vocab=4096), run="another"))
        assert (header.type, header.text("code")) == (Kind.REFUSE, "WRONG_RUN")
        assert peer.deliver(0, actor="someone").text("code") == "BAD_VALUE"
        assert ingest.wait(0, 0) == 0


def test_a_policy_that_is_too_old_is_refused(serving):
    with serving(max_lag=5) as (ingest, peer):
        peer.hello()
        ingest.set_pulse(1, 6, Mode.EXPLORE)
        assert is_ack(peer.deliver(0), 0)  # of version 1
        ingest.set_pulse(1, 7, Mode.EXPLORE)
        assert peer.deliver(1).text("code") == "STALE"


def test_credit_is_shared_by_the_actors_and_sinks_with_what_waits(serving):
    with serving(capacity_episodes=8) as (ingest, peer):
        assert peer.hello()[0].integer("credit_episodes") == 8
        assert [peer.deliver(n).integer("credit_episodes") for n in range(2)] == [7, 6]
        beat = {"state": "", "detail": "", "episodes": 0, "spooled": 0, "dead": 0}
        with contextlib.closing(Peer(ingest.port)) as other:
            other.hello(actor="other")
            header, _ = other.ask(messages.pack(Kind.HEARTBEAT, beat))
        assert header.integer("credit_episodes") == 3
        ingest.consumed(2)
        header, _ = peer.ask(messages.pack(Kind.HEARTBEAT, beat))
        assert header.integer("credit_episodes") == 4
        assert header.integer("credit_bytes") == 64 * 1024 * 1024


def test_addresses_that_can_not_be_bound_are_named(serving, tmp_path):
    with serving() as (ingest, _), Journal(tmp_path / "other") as journal:
        for address, reason in [
            (f"tcp://127.0.0.1:{ingest.port}", "in use"),
            ("tcp://0.0.0.0:0", "not encrypted"),
            ("tcp://*:0", "not encrypted"),
            ("tcp://127.0.0.1", "form"),
            ("tcp://127.0.0.1:70000", "form"),
            ("127.0.0.1:7000", "form"),
        ]:
            with pytest.raises(ConfigError, match=reason):
                Ingest(address, SPEC, WELCOME, journal)
        with Ingest("tcp://0.0.0.0:0", SPEC, WELCOME, journal, insecure=True):
            pass


def test_a_welcome_over_the_caps_is_noticed_at_the_start(tmp_path):
    with pytest.raises(WireError, match="TOO_LARGE"), Journal(tmp_path) as journal:
        Ingest("tcp://127.0.0.1:0", SPEC, WELCOME | {"settings": {"x": "y" * 70_000}}, journal)


def test_nobody_there_is_no_status(serving):
    with serving() as (ingest, _):
        address = f"tcp://127.0.0.1:{ingest.port}"
    assert channel.ask_status(address, 0.2) is None
