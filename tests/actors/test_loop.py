"""An actor's life with a learner that a test plays."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

from actors import loop
from actors.evaluators.state import StateJudge
from actors.evaluators.verdict import Status, Verdict
from actors.loop import Actor, ActorConfig
from actors.retries import Retries, Retry
from actors.session import Settings
from actors.supervise import Budget, Supervisor
from actors.waiting import Waiting
from actors.welcome import Welcome
from common.channel import Mode, Pulse
from common.errors import ConfigError, DeviceError
from common.models import autoui, vision
from common.models.distribution import FREE
from common.tasks import digest, load_tasks
from common.types import Ending, Episode, Version
from tests.actors.fakes import FakeDevice, FakePhone

TASKS = """
tasks:
  - id: count
    goal: Count to 99
    suite: general
    checks: [{shell: count, matches: "^99$"}]
"""


class FakeClient:
    """Gives a pulse for each poll from a script that a test writes."""

    task_weights = None

    def __init__(self, welcome: Welcome, pulses: Iterator[Pulse], params: dict):
        self.welcome = welcome
        self.lost_s = 0.0
        self.waiting = 0
        self.sent: list[Episode] = []
        self.states: list[str] = []
        self.fetched: list[Version | None] = []
        self.on_poll: Callable[[], None] = lambda: None
        self._pulses = pulses
        self._params = params
        self.pulse = next(pulses)

    def connect(self, timeout_s: float) -> Welcome:
        return self.welcome

    def poll(self, timeout_s: float = 0.0) -> None:
        self.on_poll()
        self.pulse = next(self._pulses, pulse(Mode.STOP))

    def heartbeat(self, state: str, detail: str = "") -> None:
        self.states.append(state)

    def fetch(self, known: Version | None):
        self.fetched.append(known)
        return self.pulse.version, self._params

    def send(self, episode: Episode) -> bool:
        self.sent.append(episode)
        return True


def pulse(mode: Mode, step: int = -1) -> Pulse:
    return Pulse("run", "life", Version(0, step), mode, "config")


@pytest.fixture
def make(tokenizer, config, params, tmp_path):
    tasks = tmp_path / "tasks.yaml"
    tasks.write_text(TASKS)

    def build(
        pulses: list[Pulse],
        device: FakeDevice | None = None,
        phone: FakePhone | None = None,
        synchronous: bool = False,
        extractor: vision.Extractor = vision.extractor,
        weights: dict = params,
        judge=None,
        waiting=None,
        **settings,
    ):
        told = {
            "model": config.to_dict(),
            "tasks": str(tasks),
            "horizon": {"general": 2},
            "sampling": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "grammar": False},
            "screens_every": 2,
            "expert_epsilon": 0.1,
            **settings,
        }
        body = tokenizer.to_json().encode()
        welcome = Welcome("run", "life", "config", "tcp://x:1", 2.0, told, body, 0)
        client = FakeClient(welcome, iter(pulses), weights)
        phone = phone or FakePhone(device)
        actor = Actor(
            client,
            phone,
            judge or StateJudge(),
            ActorConfig("a", "b", synchronous=synchronous),
            Retries(tmp_path / "retries", patience_s=0.0),
            supervisor=Supervisor(phone, Budget(backoff_s=0.0)),
            extractor=extractor,
            waiting=waiting,
        )
        return actor, client

    return build


def test_it_explores_with_the_newest_parameters(make):
    explore = [pulse(Mode.EXPLORE, step) for step in (3, 3, 3, 8, 8)]
    actor, client = make([pulse(Mode.WAIT), *explore])
    actor.run()
    assert [set(e.trajectory.version.tolist()) for e in client.sent] == [{3}, {3}, {3}, {8}, {8}]
    assert client.fetched == [None, Version(0, 3)]  # not again while it has the newest
    assert [e.seq for e in client.sent] == [0, 1, 2, 3, 4]
    assert [len(e.screens) for e in client.sent] == [2, 0, 2, 0, 2]
    assert {e.ending for e in client.sent} == {Ending.HORIZON}
    assert len({e.seed for e in client.sent}) == 5
    assert client.states == ["exploring"] * 10


def test_it_plays_what_the_learner_wants_played(make, tmp_path):
    actor, client = make([pulse(Mode.EXPLORE, 3)] * 6)
    (tmp_path / "tasks.yaml").write_text(TASKS + TASKS.replace("count", "c2").split("tasks:\n")[1])
    client.task_weights = np.array([0.0, 1.0], np.float32)
    actor.run()
    assert [e.task_id for e in client.sent] == ["c2"] * 5


def test_the_learners_tasks_are_this_machines_or_it_says_so(make, tmp_path):
    told = digest(load_tasks(str(tmp_path / "tasks.yaml")))
    actor, client = make([pulse(Mode.EXPLORE, 3)] * 2, tasks_digest=told)
    actor.run()
    assert len(client.sent) == 1
    (tmp_path / "tasks.yaml").write_text(TASKS.replace("id: count", "id: other"))
    actor, _ = make([pulse(Mode.EXPLORE, 3)] * 2, tasks_digest=told)
    with pytest.raises(ConfigError, match="Give both the same file"):
        actor.run()


def test_it_records_the_features_that_the_model_takes(make, config):
    model = dataclasses.replace(config, image_grid=None, image_tokens=1, image_dim=3)
    cached = vision.Cached(lambda image: np.full((1, 3), image.mean(), np.float32))
    asked = []

    def extractor(taken):
        asked.append(taken)
        return cached

    shapes = jax.eval_shape(lambda: autoui.init(model, jax.random.key(0)))
    weights = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    pulses = [pulse(Mode.EXPLORE, 3)] * 3
    actor, client = make(pulses, extractor=extractor, weights=weights, model=model.to_dict())
    client.heartbeat = lambda state, detail="": client.states.append(detail)
    actor.run()
    assert asked == [model]
    features = client.sent[0].trajectory.features
    assert (features.shape, features.dtype) == ((2, 1, 3), np.float32)
    assert cached.misses > 0
    assert f"{cached.hits}/{cached.hits + cached.misses} screens known" in actor._report()


def test_it_waits_while_there_is_nothing_to_do(make):
    actor, client = make([pulse(Mode.WAIT), pulse(Mode.WAIT), pulse(Mode.EXPLORE)])
    actor.run()
    assert not client.sent
    assert set(client.states) == {"waiting"}


def test_a_phone_without_an_expert_does_not_demonstrate(make):
    device = FakeDevice()
    device.simulated = False
    actor, client = make([pulse(Mode.DEMONSTRATE)] * 4, device)
    actor.run()
    assert not client.sent
    assert set(client.states) == {"waiting"}


def test_stop_ends_it_in_the_middle_of_an_episode(make):
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 2, horizon={"general": 50})

    def beat(state: str, detail: str = "") -> None:
        client.states.append(state)
        client.pulse = pulse(Mode.STOP if len(client.states) == 3 else Mode.EXPLORE, 1)

    client.heartbeat = beat
    actor.run()
    assert not client.sent
    assert len(client.states) == 3


def test_it_plays_on_while_the_learner_is_away_until_much_waits_for_it(make):
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 8)
    waiting = iter([0, loop.MAX_WAITING - 1, loop.MAX_WAITING, loop.MAX_WAITING, 3])
    client.lost_s = 60.0
    client.on_poll = lambda: setattr(client, "waiting", next(waiting, 0))
    actor.run()
    assert client.states[:6] == ["exploring"] * 4 + ["waiting"] + ["exploring"]


def test_it_gives_up_on_a_learner_that_stays_away(make):
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 8)
    client.lost_s, client.waiting = 121.0, 7
    with pytest.raises(ConfigError, match=r"silent for 121 s.* 7 episodes in its spool"):
        actor.run()


def test_new_settings_are_taken_over(make):
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 4)
    polls = iter(range(9))

    def change() -> None:
        if next(polls) == 2:
            settings = {**client.welcome.settings, "horizon": {"general": 1}}
            client.welcome = client.welcome._replace_settings(settings)

    client.on_poll = change
    client.welcome = _Replaceable(client.welcome)
    actor.run()
    assert [len(e) for e in client.sent] == [2, 2, 1]


class _Replaceable:
    """A welcome that can change its settings, and its id with them."""

    def __init__(self, welcome: Welcome, settings: dict | None = None):
        self._welcome = welcome
        self.settings = settings or welcome.settings
        self.config_id = str(self.settings)

    def __getattr__(self, name: str):
        return getattr(self._welcome, name)

    def _replace_settings(self, settings: dict) -> "_Replaceable":
        return _Replaceable(self._welcome, settings)


def test_a_phone_that_fails_is_recovered_but_not_for_ever(make):
    phone = FakePhone()
    phone.device.fail_at = 1
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 99, phone=phone)
    with pytest.raises(DeviceError, match=r"6 times in a row.*gone"):
        actor.run()
    assert phone.recoveries == [False, False, True, True, True]
    assert not client.sent
    assert actor.counts["begun"] == actor.counts["unstarted"] == 6


def test_a_phone_that_fails_in_an_episode_truncates_it_and_it_is_played_again(make):
    class Phone(FakePhone):
        def recover(self, hard=False, on_wait=lambda: None):
            super().recover(hard, on_wait)
            self.device.fail_at = None

    phone = Phone()
    phone.device.fail_at = 4  # reset and its check are 2 calls, a step without a meaning is 1
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 4, phone=phone, horizon={"general": 6})
    actor.run()
    cut, again, other = client.sent
    assert (cut.ending, again.ending) == (Ending.TRUNCATED, Ending.HORIZON)
    assert cut.cause == "device: fake: gone"
    assert (cut.task_id, cut.seed) == (again.task_id, again.seed) != (other.task_id, other.seed)
    assert cut.trajectory.mask[-1] == 0
    counts = actor.counts
    assert (counts["begun"], counts["done"], counts["truncated"], counts["retried"]) == (3, 2, 1, 1)


def test_an_episode_that_always_fails_is_given_up(make, tmp_path):
    Retries(tmp_path / "retries").put(Retry("count", 5, 2, "other"))  # its third try comes
    phone = FakePhone()
    phone.device.fail_at = 1
    actor, _ = make([pulse(Mode.EXPLORE, 1)] * 2, phone=phone)
    actor.run()
    assert (actor.counts["retried"], actor.counts["given_up"]) == (1, 1)


def test_a_retry_of_another_run_s_task_is_counted_and_left(make, tmp_path):
    Retries(tmp_path / "retries").put(Retry("of another run", 5, 1, "other"))
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 2)
    actor.run()
    assert client.sent[0].task_id == "count"
    assert (actor.counts["retried"], actor.counts["given_up"]) == (0, 1)


def test_stop_ends_the_wait_for_a_phone(make):
    phone = FakePhone()
    phone.device.fail_at = 1
    actor, client = make([pulse(Mode.EXPLORE, 1)] * 2, phone=phone)

    def beat(state: str, detail: str = "") -> None:
        client.states.append(state)
        if client.states.count("recovering") == 2:
            client.pulse = pulse(Mode.STOP)

    client.heartbeat = beat
    actor.run()
    assert phone.recoveries == [False]


def test_synchronous_actors_play_one_episode_with_each_version(make):
    pulses = [pulse(Mode.EXPLORE, step) for step in (3, 3, 3, 3, 3, 3, 4, 7)]
    actor, client = make(pulses, synchronous=True)
    actor.run()
    assert [int(e.trajectory.version[0]) for e in client.sent] == [3, 4, 7]
    assert client.states.count("waiting") == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": {"webshop": 3}}, "no horizon for .'general'"),
        ({"horizon": {"general": 0}}, "must be in 1..256"),
        ({"horizon": 3}, "don't fit"),
        ({"model": {"layers": 3}}, "no field layers"),
        ({"model": None}, "don't fit"),
        ({"model": {"image_grid": None}}, "give the folder of BLIP-2"),
        ({"tasks": "nope"}, "no tasks 'nope'"),
        ({"sampling": {"temperature": -1.0}}, "must be a number of 0 or more"),
        ({"sampling": {"beams": 4}}, "don't fit"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_a_sentence(make, change, message):
    actor, _ = make([pulse(Mode.WAIT)], **change)
    with pytest.raises(ConfigError, match=message):
        actor.run()


def test_settings_of_a_newer_learner_are_taken_as_far_as_known(config):
    values = {"model": config.to_dict(), "tasks": "t", "horizon": {"general": 1}, "new": 1}
    assert Settings.from_dict(values).sampling == FREE


def test_episodes_wait_for_a_judge_that_is_away_and_are_sent_when_it_is_back(make, tmp_path):
    class Away:
        asked = 0

        def judge(self, request):
            Away.asked += 1
            if Away.asked <= 9:  # three episodes of two steps and a start
                return Verdict(Status.UNKNOWN, "", "model", error="breaker_open")
            return Verdict(Status.FAILURE, "", "model")

    now = itertools.count(step=10)  # the pause between two tries is over at once
    pulses = [pulse(Mode.EXPLORE, 1)] * 4 + [pulse(Mode.WAIT)] * 100
    with Waiting(tmp_path / "waiting", clock=lambda: float(next(now))) as waiting:
        actor, client = make(pulses, judge=Away(), waiting=waiting)
        client.on_poll = lambda: waiting._running and waiting._running.result(5)
        actor.run()
        assert len(waiting) == 0
    assert [e.seq for e in client.sent] == [0, 1, 2]
    assert {e.ending for e in client.sent} == {Ending.HORIZON}
    assert "waiting" in client.states


def test_an_actor_whose_place_for_waiting_episodes_is_full_makes_no_more(make, tmp_path):
    class Away:
        def judge(self, request):
            return Verdict(Status.UNKNOWN, "", "model", error="breaker_open")

    with Waiting(tmp_path / "waiting", most=2) as waiting:
        actor, client = make([pulse(Mode.EXPLORE, 1)] * 9, judge=Away(), waiting=waiting)
        actor.run()
        assert len(waiting) == 2
    assert not client.sent
    assert client.states[:4] == ["exploring"] * 4
    assert set(client.states[4:]) == {"waiting"}
