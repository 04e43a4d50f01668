"""A learner that dies anywhere has in replay, afterwards, what it would have had."""

import contextlib

import numpy as np
import pytest

from actors import client as client_module
from actors.client import LearnerClient
from actors.spool import Spool
from benchmarks.kill_parts import still
from common import ports
from common.channel import Mode
from common.models import autoui
from learner import build
from learner.feed import Feed
from learner.publish_process import PublisherProcess as Publisher

REPLAY = 12


class KilledError(Exception):
    """Nothing is saved and nothing is said."""


class World:
    """A run's folder, the actor that outlives its learners, and what was seen of them."""

    def __init__(self, folder, rng):
        self.workdir, self._rng = folder / "run", rng
        self._address = f"tcp://127.0.0.1:{ports.free_port(2)}"
        self._spool = Spool(folder / "spool")
        self.client = LearnerClient(self._address, "a", "b", "d", True, self._spool)
        self.made = 0
        self.begin = -1  # the first record that went to replay
        self.lives = []

    def live(self, steps, episodes=10_000):
        """Runs a learner until it is done or dies; returns it."""
        left = iter(range(steps))
        settings = {"reinforce.replay_episodes": REPLAY, "reinforce.episodes": episodes}
        with (
            contextlib.suppress(KilledError),
            still.learner(self.workdir, self._address, **settings) as made,
        ):
            self.lives.append(made.progress.lineage)
            self.check(made)
            end = made._memory.end_demonstrations

            def noted():
                self.begin = made.progress.position
                end()

            made._memory.end_demonstrations = noted

            def stopped():
                if next(left, None) is None:
                    raise KilledError
                self.act()
                return False

            made.run(stopped)
        return made

    def act(self):
        """What an actor does while its learner does a step."""
        client = self.client
        client.poll()
        if client._welcome is None or client.waiting > 5:
            client.heartbeat("waiting")
            return
        if client.pulse.mode in (Mode.DEMONSTRATE, Mode.EXPLORE) and self._rng.random() < 0.5:
            lineage, step = client.pulse.version
            expert = client.pulse.mode is Mode.DEMONSTRATE
            client.send(
                still.episode("a", "b", self.made, expert=expert, version=step, lineage=lineage)
            )
            self.made += 1
        client.heartbeat("acting")

    def check(self, made):
        """Holds what a learner has against the journal."""
        with Feed(self.workdir / "journal", made._feed._spec) as feed:
            records = feed.take(made._ingest.wait(0, 0.0))
        assert sorted(r.episode.seq for r in records) == list(range(len(records)))
        progress, memory = made.progress, made._memory
        before = [r for r in records if r.position < progress.position]
        shown = [r.position for r in before if r.episode.source == "expert" and r.episode.success]
        if progress.phase == "warm start":
            assert memory.demonstrations.positions == shown[:6]
            assert len(memory.replay) == 0 and progress.demonstrations == len(shown[:6])
            return
        shown = [position for position in shown if position < self.begin]
        policy = [
            r.position for r in before if r.episode.source == "policy" and r.position >= self.begin
        ]
        positions = memory.replay.save()["positions"].tolist()
        assert positions == (shown[:6] + policy)[-REPLAY:]
        assert progress.episodes == len(policy)

    def close(self):
        self.client.close(timeout_s=0)
        self._spool.close()


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "HELLO_AGAIN_S", 0.05)
    monkeypatch.setitem(autoui.PRESETS, "tiny", still.MODEL)
    monkeypatch.setattr(build, "make_updates", None)
    world = World(tmp_path, np.random.default_rng(0))
    yield world
    world.close()


@pytest.fixture
def published(monkeypatch):
    versions, publish = [], Publisher.publish

    def noted(self, params, version, dtype="bfloat16"):
        versions.append(version)
        publish(self, params, version, dtype)

    monkeypatch.setattr(Publisher, "publish", noted)
    return versions


@pytest.mark.slow
def test_a_learner_that_dies_anywhere_goes_on_with_the_same_episodes(world, published):
    for steps in (3, 40, 9, 60, 2, 50, 30):
        world.live(steps)
    made = world.live(10_000, episodes=60)
    assert made.progress.phase == "done" and made.progress.episodes >= 60
    world.check(made)
    assert world.lives == list(range(1, 9))
    assert len(set(published)) == len(published)  # no version twice
    lines = (world.workdir / "episodes" / "episodes.jsonl").read_text().splitlines()
    assert len(set(lines)) == len(lines) == made.progress.position


def test_a_restored_learner_goes_on_bit_by_bit(world):
    world.live(10_000, episodes=20)  # and more are asked for below
    steps = iter(range(60))

    def stopped():
        world.act()
        return next(steps, None) is None

    # So many uses are allowed that it works in every turn, and saves at the end.
    settings = {"reinforce.max_uses": 1000.0}
    with still.learner(world.workdir, world._address, **settings) as first:
        before = first.progress.updates
        assert first.progress.phase == "reinforce"
        first.run(stopped)
        assert first.progress.updates > before
        saved, state = first._memory.save(), first._trainer.rng.bit_generator.state
    with still.learner(world.workdir, "tcp://127.0.0.1:0") as second:
        assert second._trainer.rng.bit_generator.state == state
        again = second._memory.save()
    assert saved.keys() == again.keys()
    for name, array in saved.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)


def test_actors_are_told_to_wait_until_the_restored_version_is_published(world, published):
    world.live(60)
    assert published
    with still.learner(world.workdir, world._address) as made:
        world.client._welcome = None
        world.client._is_welcome = False
        world.client.connect(5)
        assert world.client.pulse.mode is Mode.WAIT and world.client.pulse.version.step == -1
        made.run(iter([False, True]).__next__)
        while world.client.pulse.mode is Mode.WAIT:
            world.client.heartbeat("waiting")
            world.client.poll(0.1)
        assert world.client.pulse.version in published
        assert world.client.pulse.version.lineage == 2


def test_actors_wait_while_there_is_more_than_can_be_learned_from(world):
    world.live(10_000, episodes=20)  # and more are asked for below
    with still.learner(world.workdir, world._address, **{"reinforce.min_uses": 2.0}) as made:
        replay, batch = made._memory.replay, 32
        for spare, mode in ((0, Mode.EXPLORE), (batch + 1, Mode.WAIT), (0, Mode.EXPLORE)):
            # After one more batch, steps are missing: so many that were not used twice.
            replay.sampled_steps = 2 * replay.inserted_steps - spare - batch
            assert made._reinforce()
            assert made._mode() is mode


def test_another_version_of_a_checkpoint_is_refused_with_a_sentence(world):
    world.live(60)
    for memory in world.workdir.glob("checkpoints/*/memory"):
        memory.rename(memory.with_name("other"))
    with (
        pytest.raises(build.ConfigError, match="does not say what was in replay"),
        still.learner(world.workdir, "tcp://127.0.0.1:0"),
    ):
        pass
