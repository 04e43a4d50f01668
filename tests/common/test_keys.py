"""Who may talk to a learner, over sockets on loopback."""

import contextlib
import shutil
import socket
import stat
import time

import pytest

from common import channel, handshakes, keys
from common.errors import ConfigError
from common.keys import ActorKeys, LearnerKeys
from common.types import Version
from learner.publish import Publisher
from tests.actors.test_client import Client, Learner, params


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(handshakes, "FAILING_S", 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "k"
    keys.create(folder, ["one", "two"])
    return folder


@pytest.fixture
def learner_with(tmp_path):
    """Starts a learner with keys, or with none."""

    @contextlib.contextmanager
    def start(made):
        with (
            Publisher("tcp://127.0.0.1:0", keys=made).start() as publisher,
            Learner(tmp_path / "journal", publisher, 0, keys=made).start() as learner,
        ):
            publisher.publish(params(0), Version(0, 0), "float32")
            yield learner

    return start


@pytest.fixture
def client_with(tmp_path):
    return lambda learner, made: Client(learner, tmp_path / "spool", keys=made)


@pytest.fixture
def refusal(client_with):
    """Returns what an actor is told, within the five seconds that it may take."""

    def refusal(learner, made):
        begun = time.monotonic()
        with client_with(learner, made) as client, pytest.raises(ConfigError) as error:
            client.connect(20)
        assert time.monotonic() - begun < 5
        return str(error.value)

    return refusal


def test_known_keys_work_on_both_channels(folder, learner_with, client_with):
    with learner_with(LearnerKeys.load(folder / "learner")) as learner:
        for name in ("one", "two"):
            with client_with(learner, ActorKeys.load(folder / name)) as client:
                assert client.connect(5).run == "r"
                assert client.fetch(None, timeout_s=5)[0] == Version(0, 0)
        address = f"tcp://127.0.0.1:{learner.port}"
        status = channel.ask_status(address, 5, keys=ActorKeys.load(folder / "one"))
        assert status["counters"]["hellos"] == 2


def test_an_unknown_actor_is_told_and_let_in_once_it_is_allowed(
    folder, tmp_path, learner_with, client_with, refusal
):
    shutil.copytree(folder, tmp_path / "k")
    card = tmp_path / "k/learner/allowed/one.key"
    card.rename(tmp_path / "one.key")
    made = ActorKeys.load(folder / "one")
    with learner_with(LearnerKeys.load(tmp_path / "k/learner")) as learner:
        assert "doesn't know this actor's key" in refusal(learner, made)
        assert learner.counters["refused/UNKNOWN_KEY"] >= 1
        (tmp_path / "one.key").rename(card)
        with client_with(learner, made) as client:
            client.connect(5)


def test_wrong_and_missing_keys_are_told(folder, tmp_path, learner_with, refusal):
    keys.create(tmp_path / "other", ["one"])
    with learner_with(LearnerKeys.load(folder / "learner")) as learner:
        stranger = ActorKeys.load(tmp_path / "other" / "one")
        assert "its key is not the one in learner.key" in refusal(learner, stranger)
        assert "it uses keys: give --keys" in refusal(learner, None)
        with pytest.raises(ConfigError, match="it uses keys"):
            channel.ask_status(f"tcp://127.0.0.1:{learner.port}", 10)
    with learner_with(None) as learner:
        address = f"tcp://127.0.0.1:{learner.port}"
        said = refusal(learner, ActorKeys.load(folder / "one"))
        assert "it was started without --keys" in said and handshakes.mechanism(address) == "NULL"


@pytest.mark.parametrize("was_there", [True, False])
def test_a_proxy_whose_learner_is_away_does_not_end_an_actor(was_there, learner_with, client_with):
    with learner_with(None) as learner, client_with(learner, None) as client:
        if was_there:
            client.connect(5)
        port, until = learner.port, time.monotonic() + 2
        learner.close()
        with socket.create_server(("127.0.0.1", port)) as proxy:
            proxy.settimeout(0.05)
            hung_up = 0
            while time.monotonic() < until:
                client.poll()
                with contextlib.suppress(TimeoutError):
                    proxy.accept()[0].close()
                    hung_up += 1
        assert hung_up > handshakes.FAILURES


def test_secrets_are_for_their_owner_alone(folder, tmp_path):
    for path in folder.rglob("*.key_secret"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shutil.copytree(folder / "one", tmp_path / "one")
    (tmp_path / "one" / "actor.key_secret").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        ActorKeys.load(tmp_path / "one")


def test_broken_folders_are_sentences(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"is no key.*launch/keys.py"):
        ActorKeys.load(tmp_path)
    shutil.copytree(folder / "learner", tmp_path / "learner")
    (tmp_path / "learner/allowed/one.key").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"one\.key is no key"):
        LearnerKeys.load(tmp_path / "learner")
    shutil.rmtree(tmp_path / "learner/allowed")
    with pytest.raises(ConfigError, match="allowed is missing"):
        LearnerKeys.load(tmp_path / "learner")


def test_plain_sockets_stay_on_loopback():
    owner = channel.context()
    for connect in (channel.router, channel.dealer):
        with pytest.raises(ConfigError, match=r"--keys.*--insecure"):
            connect(owner, "tcp://10.0.0.1:7000")
    channel.dealer(owner, "tcp://10.0.0.1:7000", insecure=True).close(0)
    owner.term()
