"""What the learner asks of its actors, with steps that do nothing and actors that are lists."""

import collections
import contextlib
import dataclasses
import json

import numpy as np
import pytest

from common.channel import Mode
from common.errors import ConfigError, DistRLError
from common.metrics import MetricsWriter
from common.tasks import Task
from common.types import Ending
from learner.archive import Archive
from learner.config import LearnerConfig, OfflineConfig, ReinforceConfig, WarmStartConfig
from learner.curriculum import Curriculum, CurriculumConfig
from learner.health import HealthConfig
from learner.loop import MOST_SKIPPED, Learner, Progress
from learner.priorities import PriorityConfig
from learner.state import ImitationReport, LearnerState, StepReport
from learner.update import Updates
from tests.episodes import episode

TASKS = [Task(f"task-{seq}", "Open the clock", ()) for seq in range(12)]


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

    def set_task_weights(self, weights):
        self.task_weights = weights


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


def imitated(steps):
    return ImitationReport(np.ones(len(steps.touched)), {"policy/skipped": 0.0})


@pytest.fixture
def make_learner(tmp_path):
    opened = contextlib.ExitStack()

    def make(skipped=0, recorded=None, demonstrations=0, **changes):
        config = LearnerConfig(
            warm_start=WarmStartConfig(demonstrations=demonstrations, begin=1, max_updates=2),
            reinforce=ReinforceConfig(
                warmup_episodes=2, batch_steps=20, critic_updates=0, critic_warmup=0,
                **changes.pop("reinforce", {}),
            ),
            **changes,
        )  # fmt: skip
        updates = Updates(
            imitate=lambda state, steps: (state, imitated(steps)),
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
            curriculum=Curriculum(TASKS, config.curriculum),
            recorded=None if recorded is None else iter(recorded),
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


def recorded():
    """Two successes and a failure each of an expert, of our policy and of another's."""
    return [
        dataclasses.replace(episode(5, seq=seq, success=seq % 3 < 2), source=source)
        for seq, source in enumerate(np.repeat(["expert", "policy", "recorded"], 3).tolist())
    ]


def in_replay(learner):
    return [entry.episode.seq for entry in learner._replay._entries if entry]


def test_recorded_successes_are_demonstrations_and_the_rest_is_replayed(make_learner):
    learner = make_learner(recorded=recorded(), demonstrations=3)
    learner.tick()
    assert [one.seq for one in learner._demos] == [0, 1, 3]
    assert in_replay(learner) == [4, 5, 6, 7, 8]  # 2 is an expert's failure
    assert learner.progress.demonstrations == 3
    assert learner._ingest.modes[-1] is Mode.EXPLORE  # nobody has to demonstrate
    learner.tick()  # the second of two updates ends the warm start
    assert learner.progress.phase == "reinforce"
    assert sorted(in_replay(learner)) == [0, 1, 3, 4, 5, 6, 7, 8]


def test_offline_updates_come_before_new_episodes(make_learner):
    learner = make_learner(
        recorded=recorded(),
        offline=OfflineConfig("folder", updates=3),
        reinforce={"max_uses": 1.0},
    )
    for _ in range(3):
        assert learner.progress.phase in ("warm start", "offline")
        learner.tick()
        assert learner._ingest.modes[-1] is Mode.WAIT
    assert (learner.progress.updates, learner.progress.offline_updates) == (3, 3)
    learner.tick()
    assert learner.progress.phase == "reinforce"
    learner.tick()
    assert learner._ingest.modes[-1] is Mode.EXPLORE
    arrive(learner, 3)
    learner.tick()  # 15 new steps, each to be used once, are too few for 20
    assert learner.progress.updates == 3
    arrive(learner, 1)
    learner.tick()
    assert (learner.progress.updates, learner.progress.episodes) == (4, 4)


def test_recorded_episodes_alone_are_no_reason_to_go_on_learning(make_learner):
    learner = make_learner(recorded=recorded(), reinforce={"max_uses": 1.0})
    arrive(learner, 3)
    learner.tick()  # 15 new steps are too few for 20, whatever was recorded
    assert learner.progress.updates == 0
    arrive(learner, 1)
    learner.tick()
    assert learner.progress.updates == 1


def test_without_new_episodes_a_run_is_offline_alone(make_learner):
    offline = OfflineConfig("folder", updates=3)
    learner = make_learner(recorded=recorded(), offline=offline, reinforce={"episodes": 0})
    learner.run(lambda: False)
    assert (learner.progress.phase, learner.progress.updates) == ("done", 3)


def test_recorded_episodes_without_a_success_are_nothing_to_imitate(make_learner):
    offline = OfflineConfig("folder", updates=3)
    learner = make_learner(
        recorded=[episode(5, seq=0, success=False)],
        offline=offline,
        priority=PriorityConfig(successes_only=True),
    )
    with pytest.raises(ConfigError, match="nothing to learn from in folder"):
        learner.run(lambda: False)


def test_what_surprised_the_critic_is_to_be_played_more(make_learner):
    learner = make_learner(curriculum=CurriculumConfig("surprise", rate=1.0))
    arrive(learner, 2, success=False)  # the critic foresees 0
    unknown = episode(5, seq=2, ending=Ending.TRUNCATED)
    learner._ingest.arrived.append(unknown)  # says nothing of the policy
    learner.tick()
    learner._report(force=True)
    weights = learner._ingest.task_weights
    assert weights[0] == weights[1] < 0.03 < weights[2]
    assert len(weights) == len(TASKS)
