"""The data socket against raw peers: every message has an answer and nothing stops it."""

import contextlib
import dataclasses

import numpy as np
import pytest
import zmq

from common import channel, messages
from common.channel import Kind, Mode
from common.codec import EpisodeSpec, encode_episode
from common.errors import ConfigError, WireError
from learner import ingest as ingest_module
from learner.ingest import Ingest, Seen
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
        return self.ask(encode_episode(made))[0]

    def close(self):
        self.socket.close(0)
        self._context.term()


def is_ack(header, seq):
    return (header.type, header.text("boot"), header.integer("seq")) == (Kind.ACK, "b", seq)


@contextlib.contextmanager
def serving(**options):
    with (
        Ingest("tcp://127.0.0.1:0", SPEC, WELCOME, b"tok", **options).start() as ingest,
        contextlib.closing(Peer(ingest.port)) as peer,
    ):
        yield ingest, peer


def test_welcome_says_what_an_actor_needs():
    with serving() as (ingest, peer):
        ingest.set_pulse(3, 9, Mode.DEMONSTRATE)
        header, body = peer.hello()
        assert header.type == Kind.WELCOME and body == b"tok"
        assert header.get("settings", dict) == {"horizon": 10}
        assert header.integer("params_port") == 1 and header.text("mode") == "demonstrate"
        assert (header.integer("lineage"), header.integer("version")) == (3, 9)


def test_a_stranger_has_to_say_hello_first():
    with serving() as (ingest, peer):
        assert peer.deliver(0).type == Kind.UNKNOWN_PEER
        peer.hello()
        assert is_ack(peer.deliver(0), 0)
        assert ingest.counters["unknown_peers"] == 1 and len(ingest.drain()) == 1


def test_duplicates_are_acknowledged_and_delivered_once():
    with serving() as (ingest, peer):
        peer.hello()
        for number in (0, 2, 0, 1, 2, 1, 3, 0):
            assert is_ack(peer.deliver(number), number)
        assert [made.seq for made in ingest.drain()] == [0, 2, 1, 3]
        assert ingest.counters["duplicates"] == 4 and ingest.counters["accepted"] == 4
        assert peer.deliver(0, boot="another").type == Kind.ACK
        assert ingest.get(1).boot == "another"


def test_seen_agrees_with_a_set_over_many_numbers():
    rng, seen, twin = np.random.default_rng(0), Seen(), set()
    for base in range(5000):
        number = max(0, base + int(rng.integers(-20, 20)))
        assert (number in seen) == (number in twin)
        seen.add(number)
        twin.add(number)


def test_a_gap_costs_bounded_memory():
    seen = Seen()
    for number in range(1, 10_000):  # 0 was refused
        assert number not in seen
        seen.add(number)
        assert len(seen._ahead) <= ingest_module.MAX_AHEAD
    assert all(number in seen for number in range(1, 10_000))


def test_malformed_messages_are_counted_by_code_and_the_next_episode_accepted():
    with serving() as (ingest, peer):
        peer.hello()
        bad = {
            "BAD_FRAMES": [b"x"],
            "BAD_HEADER": [b"\xc1", b""],
            "TOO_LARGE": [bytes(70_000), b""],
            "BAD_SCHEMA": messages.pack("NONSENSE", {}),
            "BAD_VALUE": encode_episode(episode(2, seq=4094, vocab=4096)),
        }
        for code, frames in bad.items():
            header, _ = peer.ask(frames)
            assert (header.type, header.text("code")) == (Kind.REFUSE, code)
            assert ingest.counters[f"refused/{code}"] == 1
        assert header.integer("seq") == 4094  # a refused episode is named
        assert ingest.counters["refused"] == len(bad)
        assert is_ack(peer.deliver(0), 0)
        assert ingest.get(1).seq == 0 and ingest.get(0) is None


def test_an_actor_cannot_send_what_only_files_hold():
    made = episode(2)
    made.trajectory.version[:] = -1
    with serving() as (ingest, peer):
        peer.hello()
        header, _ = peer.ask(encode_episode(dataclasses.replace(made, source="recorded")))
        assert (header.type, header.text("code")) == (Kind.REFUSE, "BAD_VALUE")
        assert ingest.get(0) is None


def test_noise_does_not_stop_the_thread():
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


@pytest.mark.parametrize("budget", [{"capacity_episodes": 2}, {"capacity_bytes": 3000}])
def test_over_budget_the_actor_is_told_to_come_again(budget):
    with serving(**budget) as (ingest, peer):
        peer.hello()
        kinds = [peer.deliver(number).type for number in range(4)]
        taken = kinds.count(Kind.ACK)
        assert kinds == [Kind.ACK] * taken + [Kind.RETRY_AFTER] * (4 - taken) and 0 < taken < 4
        assert is_ack(peer.deliver(0), 0)  # a duplicate needs no room
        assert [made.seq for made in ingest.drain()] == list(range(taken))
        assert is_ack(peer.deliver(taken), taken)


def test_heartbeats_and_status_show_the_actor():
    with serving() as (ingest, peer):
        peer.hello()
        beat = {"actor": "test", "boot": "b", "state": "acting", "detail": "step 3", "episodes": 5}
        header, _ = peer.ask(messages.pack(Kind.HEARTBEAT, beat | {"lineage": 1, "version": 4}))
        assert header.type == Kind.PULSE and header.text("mode") == "wait"
        ingest.set_status({"phase": "rl", "success": np.float32(0.5)})
        status = channel.ask_status(f"tcp://127.0.0.1:{ingest.port}", 5)
        actor = status["actors"]["test"]
        assert (actor["state"], actor["detail"], actor["episodes"]) == ("acting", "step 3", 5)
        assert actor["version"] == [1, 4] and 0 <= actor["last_seen_s"] < 5
        assert status["learner"] == {"phase": "rl", "success": 0.5}
        assert status["counters"]["heartbeats"] == 1 and status["run"] == "r"
        assert ingest.actors["test"]["can_demonstrate"]


def test_what_was_acknowledged_can_be_drained_after_close():
    with serving() as (ingest, peer):
        peer.hello()
        peer.deliver(0)
        ingest.close()
        assert [made.seq for made in ingest.drain()] == [0]


def test_addresses_that_can_not_be_bound_are_named():
    with serving() as (ingest, _):
        for address, reason in [
            (f"tcp://127.0.0.1:{ingest.port}", "in use"),
            ("tcp://0.0.0.0:0", "not encrypted"),
            ("tcp://*:0", "not encrypted"),
            ("tcp://127.0.0.1", "form"),
            ("tcp://127.0.0.1:70000", "form"),
            ("127.0.0.1:7000", "form"),
        ]:
            with pytest.raises(ConfigError, match=reason):
                Ingest(address, SPEC, WELCOME)
    with Ingest("tcp://0.0.0.0:0", SPEC, WELCOME, insecure=True):
        pass


def test_a_welcome_over_the_caps_is_noticed_at_the_start():
    with pytest.raises(WireError, match="TOO_LARGE"):
        Ingest("tcp://127.0.0.1:0", SPEC, WELCOME | {"settings": {"x": "y" * 70_000}})


def test_nobody_there_is_no_status():
    with serving() as (ingest, _):
        address = f"tcp://127.0.0.1:{ingest.port}"
    assert channel.ask_status(address, 0.2) is None
