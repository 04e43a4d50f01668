"""What the learner asks of its actors, with steps that do nothing and actors that are lists."""

import collections
import contextlib
import dataclasses
import json

import numpy as np
import pytest

from common.channel import Mode
from common.errors import DistRLError
from common.metrics import MetricsWriter
from learner.archive import Archive
from learner.config import LearnerConfig, ReinforceConfig, WarmStartConfig
from learner.health import HealthConfig
from learner.loop import MOST_SKIPPED, Learner, Progress
from learner.state import LearnerState, StepReport
from learner.update import Updates
from tests.episodes import episode


class Ingest:
    """Hands out prepared episodes and remembers what the actors were told."""

    def __init__(self):
        self.arrived = collections.deque()
        self.modes, self.counters, self.actors = [], {}, {}

    def get(self, timeout_s):
        return self.arrived.popleft() if self.arrived else None

    def drain(self):
        episodes = list(self.arrived)
        self.arrived.clear()
        return episodes

    def set_pulse(self, lineage, version, mode):
        self.modes.append(mode)

    def set_status(self, status):
        self.status = status


class Nothing:
    """Publisher and checkpoints that keep the count alone."""

    def __init__(self):
        self.published = 0

    def publish(self, *_):
        self.published += 1

    def __getattr__(self, name):
        return lambda *_: None


def report(batch, skipped):
    rows = np.full(len(batch.reward), np.nan if skipped else 0.0, np.float32)
    scalars = {"policy/skipped": float(skipped)}
    return StepReport(rows, rows, rows, rows, rows, scalars)


@pytest.fixture
def make_learner(tmp_path):
    opened = contextlib.ExitStack()

    def make(skipped=0, **changes):
        config = LearnerConfig(
            warm_start=WarmStartConfig(demonstrations=0),
            reinforce=ReinforceConfig(
                warmup_episodes=2, batch_steps=20, critic_updates=0, critic_warmup=0,
                **changes.pop("reinforce", {}),
            ),
            **changes,
        )  # fmt: skip
        updates = Updates(
            imitate=None,
            improve=lambda state, batch, step_size: (state, report(batch, skipped)),
            improve_critic=None,
            measure=None,
            init=None,
            restart_policy_optimizer=lambda state: state,
        )
        state = LearnerState({"w": np.ones(1, np.float32)}, None, None, None, None, {})
        learner = Learner(
            config,
            updates,
            state,
            Progress(lineage=1),
            np.random.default_rng(0),
            ingest=Ingest(),
            publisher=Nothing(),
            checkpoints=Nothing(),
            metrics=opened.enter_context(MetricsWriter(tmp_path / "metrics.jsonl")),
            archive=opened.enter_context(contextlib.closing(Archive(tmp_path / "episodes"))),
            meta={"model": {"image_grid": None}},
        )
        learner.tick = lambda: run_once(learner)
        return learner

    def run_once(learner):
        turns = iter([False, True])
        learner.run(lambda: next(turns))

    with opened:
        yield make


def arrive(learner, count, **how):
    started = len(learner._replay) + len(learner._ingest.arrived)
    learner._ingest.arrived.extend(episode(5, seq=started + i, **how) for i in range(count))


def test_a_synchronous_round_makes_actors_wait_for_the_updates(make_learner):
    learner = make_learner(reinforce={"synchronous": True, "round_episodes": 4, "max_uses": 2.0})
    ingest = learner._ingest
    arrive(learner, 3)
    learner.tick()
    assert (ingest.modes[-1], learner.progress.updates) == (Mode.EXPLORE, 0)
    arrive(learner, 1)
    learner.tick()
    assert (ingest.modes[-1], learner.progress.updates) == (Mode.WAIT, 1)
    published = learner._publisher.published
    learner.tick()  # 20 steps arrived, and each may be used twice
    assert (ingest.modes[-1], learner.progress.updates) == (Mode.WAIT, 2)
    learner.tick()  # no update is left: the round is over
    assert learner._publisher.published > published
    learner.tick()
    assert (ingest.modes[-1], learner.progress.updates) == (Mode.EXPLORE, 2)


def test_asynchronous_actors_never_wait(make_learner):
    learner = make_learner()
    arrive(learner, 30)
    for _ in range(5):
        learner.tick()
    assert set(learner._ingest.modes) == {Mode.EXPLORE}
    assert learner.progress.updates == 5


def test_the_step_size_falls_over_the_episodes(make_learner):
    learner = make_learner(reinforce={"episodes": 40, "final_step_size": 0.2})
    sizes = []
    for _ in range(3):
        arrive(learner, 10)
        learner.tick()
        sizes.append(learner._scalars["policy/step_size"])
    np.testing.assert_allclose(sizes, [1 - 0.8 * share for share in (0.25, 0.5, 0.75)])


def test_a_run_whose_gradients_are_no_numbers_ends(make_learner):
    learner = make_learner(skipped=1)
    arrive(learner, 400)
    for _ in range(MOST_SKIPPED - 1):
        learner.tick()
    with pytest.raises(DistRLError, match=r"20 gradients in a row were not finite.*policy_lr"):
        learner.tick()


def test_an_unhealthy_run_is_warned_or_stopped(make_learner, caplog):
    config = HealthConfig(episodes_without_success=5)
    learner = make_learner(health=config)
    arrive(learner, 1)
    learner.tick()
    learner._health._best = 0.8
    arrive(learner, 20, success=False)
    learner.tick()
    assert "the policy has collapsed" in caplog.text
    learner = make_learner(health=dataclasses.replace(config, then="stop"))
    learner._health._best = 3.0
    arrive(learner, 10, success=False)
    with pytest.raises(DistRLError, match="collapsed"):
        learner.tick()


def test_what_is_written_a_second(make_learner, tmp_path):
    learner = make_learner()
    arrive(learner, 10)
    learner.tick()
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["actors/success"] == 1.0 and row["actors/episodes"] == 10
