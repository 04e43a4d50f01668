"""The actor's end against a real learner's end, over sockets on loopback."""

import dataclasses
import time

import ml_dtypes
import numpy as np
import pytest

from actors import client as client_module
from actors import download
from actors.client import LearnerClient, LearnerLost
from common.channel import Mode
from common.codec import EpisodeSpec
from common.errors import ConfigError, WireError
from common.types import Version
from learner import ingest as ingest_module
from learner.ingest import Ingest
from learner.publish import Publisher
from tests.episodes import episode

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=4096)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "RESEND_S", 0.5)
    monkeypatch.setattr(client_module, "HELLO_AGAIN_S", 0.2)
    monkeypatch.setattr(client_module, "SAY_EVERY_S", 0.1)
    monkeypatch.setattr(ingest_module, "RETRY_AFTER_S", 0.05)
    monkeypatch.setattr(download, "ASK_AGAIN_S", 0.3)


@pytest.fixture
def publisher():
    with Publisher("tcp://127.0.0.1:0", chunk_bytes=1000).start() as publisher:
        yield publisher


def start_learner(publisher, port=0, **options):
    welcome = {
        "run": "r",
        "params_port": publisher.port,
        "heartbeat_s": 0.05,
        "settings": {"horizon": 10},
    }
    return Ingest(f"tcp://127.0.0.1:{port}", SPEC, welcome, b"tokenizer", **options).start()


@pytest.fixture
def learner(publisher):
    with start_learner(publisher) as learner:
        yield learner


def make_client(learner, actor="test", boot="b"):
    return LearnerClient(f"tcp://127.0.0.1:{learner.port}", actor, boot, "a device", False)


@pytest.fixture
def client(learner):
    with make_client(learner) as client:
        client.connect(5)
        yield client


def make_episode(number, **changes):
    return dataclasses.replace(episode(2, seq=number, vocab=4096), **changes)


def params(seed, size=2500):
    rng = np.random.default_rng(seed)
    return {"layer": {"w": rng.normal(size=(size,)).astype(np.float32)}}


def eventually(fact, timeout_s=5.0, meanwhile=lambda: None):
    deadline = time.monotonic() + timeout_s
    while not fact():
        assert time.monotonic() < deadline, "didn't happen in time"
        meanwhile()
        time.sleep(0.01)


def test_welcome_and_pulse_arrive(learner, publisher, client):
    assert client.welcome.settings == {"horizon": 10} and client.welcome.body == b"tokenizer"
    assert client.welcome.params_address == f"tcp://127.0.0.1:{publisher.port}"
    assert client.pulse.mode is Mode.WAIT
    learner.set_pulse(2, 5, "explore")
    eventually(lambda: client.pulse.mode is Mode.EXPLORE, meanwhile=lambda: client.heartbeat("x"))
    assert client.pulse.version == Version(2, 5) and client.lost_s < 5
    assert learner.actors["test"]["state"] == "x" and learner.actors["test"]["device"] == "a device"


def test_episodes_arrive_in_order_and_equal(learner, client):
    for number in range(20):
        assert client.send(make_episode(number))
    assert client.close() == 0
    arrived = learner.drain()
    assert [made.seq for made in arrived] == list(range(20))
    np.testing.assert_array_equal(
        arrived[3].trajectory.prompt_ids, make_episode(3).trajectory.prompt_ids
    )
    assert client.counters["acked"] == 20


def test_two_clients_do_not_mix(learner):
    with make_client(learner, "one") as one, make_client(learner, "two") as two:
        for client in (one, two):
            client.connect(5)
        for number in range(10):
            one.send(make_episode(number, actor="one"))
            two.send(make_episode(number, actor="two"))
    arrived = learner.drain()
    for name in ("one", "two"):
        assert [made.seq for made in arrived if made.actor == name] == list(range(10))
    assert set(learner.actors) == {"one", "two"}


def test_a_restarted_actor_is_a_new_boot(learner):
    for boot in ("first", "second"):
        with make_client(learner, boot=boot) as client:
            client.connect(5)
            client.send(make_episode(0, boot=boot))
    assert [made.boot for made in learner.drain()] == ["first", "second"]
    assert learner.actors["test"]["boot"] == "second"


def test_a_restarted_learner_gets_every_episode_and_none_twice(publisher):
    lives, numbers = [], iter(range(60))
    learner = start_learner(publisher)
    with make_client(learner) as client:
        client.connect(5)
        for life in range(3):
            for _ in range(20):
                client.send(make_episode(next(numbers)))
                client.heartbeat("acting")
            if life < 2:  # while some are under way
                learner.close()
                lives.append([made.seq for made in learner.drain()])
                learner = start_learner(publisher, learner.port)
        eventually(lambda: client.in_flight == 0, 10, client.poll)
        assert client.welcome.generation == 2 and client.welcome.life == client.pulse.life
    learner.close()
    lives.append([made.seq for made in learner.drain()])
    assert all(len(set(life)) == len(life) and life for life in lives)
    assert set().union(*lives) == set(range(60))


def test_a_learner_that_forgot_the_peer_is_greeted_again(learner, client):
    client.send(make_episode(0))
    learner._peers.clear()
    client.send(make_episode(1))
    eventually(lambda: client.in_flight == 0, meanwhile=client.poll)
    assert [made.seq for made in learner.drain()] == [0, 1]
    assert client.welcome.generation == 0  # it is the same learner


def test_a_final_refusal_is_counted_and_the_next_episode_accepted(learner, client):
    good = make_episode(0)
    tokens = good.trajectory._replace(prompt_ids=np.full((2, 8), 9999, np.int32))
    client.send(dataclasses.replace(good, trajectory=tokens))
    client.send(make_episode(1))
    assert client.close() == 0
    assert [made.seq for made in learner.drain()] == [1]
    assert client.counters["refused/BAD_VALUE"] == 1 and client.counters["acked"] == 1


def test_a_full_learner_gets_everything_in_the_end(publisher):
    with start_learner(publisher, capacity_episodes=2) as learner, make_client(learner) as client:
        client.connect(5)
        for number in range(6):
            client.send(make_episode(number))
        with pytest.raises(LearnerLost, match="took no episode"):
            client.send(make_episode(6), timeout_s=0.3)
        arrived = []
        eventually(
            lambda: arrived.extend(learner.drain()) or client.in_flight == 0, meanwhile=client.poll
        )
        client.send(make_episode(6))
        assert client.close() == 0
        arrived += learner.drain()
    assert sorted(made.seq for made in arrived) == list(range(7))
    assert client.counters["retried"] > 0


def test_stop_ends_the_wait_for_room(publisher):
    with start_learner(publisher, capacity_episodes=1) as learner, make_client(learner) as client:
        client.connect(5)
        for number in range(5):
            client.send(make_episode(number))
        learner.set_pulse(0, 0, Mode.STOP)
        assert not client.send(make_episode(5), timeout_s=5)
        assert client.close(timeout_s=0.2) == 4


def test_wrong_numbers_are_the_callers_mistake(client):
    for wrong in (make_episode(1), make_episode(0, boot="old"), make_episode(0, actor="other")):
        with pytest.raises(ValueError):
            client.send(wrong)


def test_a_silent_learner_is_waited_for_and_given_up_by_name(publisher):
    with start_learner(publisher) as learner:
        pass
    said = []
    begun = time.monotonic()
    sentence = rf"127\.0\.0\.1:{learner.port} within 0\.5 s"
    with make_client(learner) as client, pytest.raises(ConfigError, match=sentence):
        client.connect(0.5, said.append)
    assert 0.5 <= time.monotonic() - begun < 1.5
    assert said and "Waiting for the learner" in said[0]


def test_an_actor_may_start_before_the_learner(publisher):
    with start_learner(publisher) as learner:
        pass
    with make_client(learner) as client:
        with pytest.raises(ConfigError):
            client.connect(0.2)
        with start_learner(publisher, learner.port):
            assert client.connect(5).run == "r"


@pytest.mark.parametrize("address", ["", "localhost:7000", "tcp://x", "tcp://x:0", "tcp://a b:1"])
def test_a_malformed_address_is_refused_at_once(address):
    with pytest.raises(ConfigError, match="tcp://host:port"):
        LearnerClient(address, "a", "b", "d", False)


def test_a_refused_actor_is_told_why(learner):
    with (
        make_client(learner, actor="x" * 300) as client,
        pytest.raises(ConfigError, match="TOO_LARGE: actor"),
    ):
        client.connect(5)


def test_a_learner_of_another_protocol_ends_the_actor(learner, client, monkeypatch):
    def refuse(*_):
        raise WireError("BAD_VERSION", "The message has protocol version 1, not 2.")

    monkeypatch.setattr(learner, "_answer", refuse)
    with pytest.raises(ConfigError, match="BAD_VERSION"):
        eventually(lambda: False, meanwhile=lambda: client.heartbeat("acting"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_late_joiner_gets_the_newest_parameters_at_once(publisher, client, dtype):
    assert client.fetch(None) is None  # nothing published yet
    for step in range(3):
        publisher.publish(params(step), Version(1, step), dtype)
    version, got = client.fetch(None, timeout_s=5)
    expected = params(2)["layer"]["w"]
    if dtype == "bfloat16":
        expected = expected.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert version == client.version == Version(1, 2)
    np.testing.assert_array_equal(got["layer"]["w"], expected)
    assert client.fetch(version) is None
    publisher.publish(params(3), Version(2, 0))  # a new lineage is newer, whatever its step
    assert client.fetch(version)[0] == Version(2, 0)


def test_parameters_published_during_a_download(publisher, client, monkeypatch):
    """The download under way is allowed to finish; the one after it gives the newest."""
    publisher.publish(params(0), Version(0, 0), "float32")
    original = publisher._chunk

    def publish_before_chunk(blobs, header):
        if publisher.counters["published"] == 1:
            publisher.publish(params(1), Version(0, 1), "float32")
        return original(publisher._blobs, header)

    monkeypatch.setattr(publisher, "_chunk", publish_before_chunk)
    version, got = client.fetch(None, timeout_s=5)
    assert version == Version(0, 0)
    np.testing.assert_array_equal(got["layer"]["w"], params(0)["layer"]["w"])
    assert client.fetch(version, timeout_s=5)[0] == Version(0, 1)


def test_a_blob_that_is_gone_is_replaced_by_the_newest(publisher, client, monkeypatch):
    publisher.publish(params(0), Version(0, 0))
    original = publisher._chunk

    def publish_before_chunk(blobs, header):
        while publisher.counters["published"] < 3:
            step = publisher.counters["published"]
            publisher.publish(params(step), Version(0, step))
        return original(publisher._blobs, header)

    monkeypatch.setattr(publisher, "_chunk", publish_before_chunk)
    assert client.fetch(None, timeout_s=5)[0] == Version(0, 2)
    assert publisher.counters["gone"] > 0


@pytest.mark.parametrize("times", [1, 1000])
def test_a_damaged_chunk_is_asked_for_again_but_not_for_ever(publisher, client, monkeypatch, times):
    publisher.publish(params(0), Version(0, 0), "float32")
    original, damaged = publisher._chunk, []

    def damage(blobs, header):
        head, body = original(blobs, header)
        if header.integer("index") == 3 and len(damaged) < times:
            damaged.append(3)
            body = body[:-1] + bytes([body[-1] ^ 1])
        return [head, body]

    monkeypatch.setattr(publisher, "_chunk", damage)
    if times == 1:
        _, got = client.fetch(None, timeout_s=5)
        np.testing.assert_array_equal(got["layer"]["w"], params(0)["layer"]["w"])
    else:
        with pytest.raises(WireError, match="BAD_CHECKSUM"):
            client.fetch(None, timeout_s=5)
    assert damaged


def test_a_download_goes_on_where_it_ran_out_of_time(publisher, client, monkeypatch):
    publisher.publish(params(0), Version(0, 0), "float32")
    original, served = publisher._chunk, []

    def slowly(blobs, header):
        time.sleep(0.03)
        served.append(header.integer("index"))
        return original(blobs, header)

    monkeypatch.setattr(publisher, "_chunk", slowly)
    assert client.fetch(None, timeout_s=0.15) is None
    assert 0 < len(served) < 10  # of ten chunks
    version, got = client.fetch(None, timeout_s=5)
    assert version == Version(0, 0) and len(served) <= 10 + download.CREDIT
    np.testing.assert_array_equal(got["layer"]["w"], params(0)["layer"]["w"])


def test_parameters_follow_a_restarted_learner_to_its_new_port(learner, publisher, client):
    publisher.publish(params(0), Version(0, 0))
    assert client.fetch(None, timeout_s=5)[0] == Version(0, 0)
    learner.close()
    with Publisher("tcp://127.0.0.1:0").start() as second, start_learner(second, learner.port):
        second.publish(params(1), Version(1, 0))
        eventually(
            lambda: client.welcome.generation == 1, meanwhile=lambda: client.heartbeat("acting")
        )
        assert client.fetch(client.version, timeout_s=5)[0] == Version(1, 0)


def adapted(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((40, 2), (2, 30)))
    return {"q": {"lora_a": a, "lora_b": b}, "gate": np.float32(seed)}


KERNEL = np.random.default_rng(9).normal(size=(40, 30)).astype(np.float32)


def check_adapted(fetched, step):
    version, got = fetched
    expected = adapted(step)
    assert version.step == step and got["gate"] == step and got["q"].keys() == {"kernel"}
    kernel = KERNEL + expected["q"]["lora_a"] @ expected["q"]["lora_b"]
    np.testing.assert_allclose(got["q"]["kernel"], kernel, atol=1e-5)


def test_a_base_is_fetched_once_and_adapters_come_merged(publisher, client):
    publisher.publish_base({"q": {"kernel": KERNEL}}, 1, "float32")
    for step in (1, 2):
        publisher.publish(adapted(step), Version(1, step), "float32")
        check_adapted(client.fetch(client.version, timeout_s=5), step)
        # manifests of version and base, and of the version again; then of the version alone
        assert publisher.counters["manifests"] == (3, 4)[step - 1]
    assert client.fetch(client.version) is None
    assert publisher.counters["chunks"] == 5 + 2  # of 1000 bytes: 40 * 30 * 4, and twice 564


def test_a_base_outlives_its_learner(learner, publisher, client):
    publisher.publish_base({"q": {"kernel": KERNEL}}, 1, "float32")
    publisher.publish(adapted(1), Version(1, 1), "float32")
    check_adapted(client.fetch(None, timeout_s=5), 1)
    learner.close()
    with (
        Publisher("tcp://127.0.0.1:0", chunk_bytes=1000).start() as second,
        start_learner(second, learner.port),
    ):
        second.publish_base({"q": {"kernel": KERNEL}}, 2, "float32")
        second.publish(adapted(5), Version(2, 5), "float32")
        eventually(
            lambda: client.welcome.generation == 1, meanwhile=lambda: client.heartbeat("acting")
        )
        check_adapted(client.fetch(client.version, timeout_s=5), 5)
        assert second.counters["manifests"] == second.counters["chunks"] == 1


def test_a_base_that_takes_more_than_one_fetch(publisher, client, monkeypatch):
    publisher.publish_base({"q": {"kernel": KERNEL}}, 1, "float32")
    publisher.publish(adapted(1), Version(1, 1), "float32")
    original = publisher._chunk
    monkeypatch.setattr(publisher, "_chunk", lambda *a: time.sleep(0.1) or original(*a))
    assert client.fetch(None, timeout_s=0.25) is None
    check_adapted(client.fetch(None, timeout_s=5), 1)


def test_heartbeats_go_on_during_a_long_download(learner, publisher, client, monkeypatch):
    publisher.publish(params(0), Version(0, 0), "float32")
    original = publisher._chunk
    monkeypatch.setattr(publisher, "_chunk", lambda *a: time.sleep(0.05) or original(*a))
    client.fetch(None, timeout_s=5)
    assert learner.counters["heartbeats"] >= 3


def test_the_weights_of_the_tasks_come_with_the_pulse(learner, client):
    weights = np.array([0.25, 0.75, 0.0], np.float32)
    learner.set_task_weights(weights)
    eventually(
        lambda: client.task_weights is not None, meanwhile=lambda: client.heartbeat("exploring")
    )
    np.testing.assert_array_equal(client.task_weights, weights)
    learner.set_task_weights(None)  # actors choose for themselves
    eventually(lambda: client.task_weights is None, meanwhile=lambda: client.heartbeat("exploring"))


def test_weights_that_are_none_are_counted_and_not_used(learner, client):
    learner.set_task_weights(np.array([1.0, np.nan], np.float32))
    eventually(
        lambda: client.counters["bad_replies"] > 0,
        meanwhile=lambda: client.heartbeat("exploring"),
    )
    assert client.task_weights is None
