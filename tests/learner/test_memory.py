"""What a learner remembers comes back out of a checkpoint and the journal."""

import numpy as np
import pytest

from learner.config import LearnerConfig
from learner.curriculum import Curriculum
from learner.memory import Memory
from learner.priorities import EpisodeTerms
from learner.replay import Replay
from tests.episodes import episode


def used(capacity=9, episodes=14, seed=0):
    """Returns a replay after some use, and its episodes by position."""
    rng = np.random.default_rng(seed)
    replay, made = Replay(capacity, rng), {}
    for seq in range(episodes):
        made[10 * seq] = episode(int(rng.integers(2, 6)), seq=seq, success=bool(seq % 2))
        replay.insert(made[10 * seq], 0.0 if seq % 5 == 0 else None, position=10 * seq)
        if seq % 3 == 2:
            for entry in replay.sample(12):
                targets = rng.random(len(entry.episode)).astype(np.float32)
                replay.update(entry.handle, float(rng.random()), targets)
    return replay, made


def remembering(config, grid):
    return Memory(config, grid, np.random.default_rng(0), Curriculum([], config.curriculum))


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("episodes", [0, 1, 8, 9, 14])
def test_a_restored_replay_draws_the_same(episodes):
    replay, made = used(episodes=episodes)
    again = Replay(9, np.random.default_rng(5))
    again.restore(replay.save(), made)
    assert_same(again.save(), replay.save())
    replay._rng = np.random.default_rng(5)
    for _ in range(20):
        drawn, twin = replay.sample(15), again.sample(15)
        assert [entry.position for entry in drawn] == [entry.position for entry in twin]
        for entry, other in zip(drawn, twin, strict=True):
            np.testing.assert_array_equal(entry.targets, other.targets)


def test_a_smaller_replay_keeps_the_newest_and_a_lost_episode_is_left_out():
    replay, made = used()
    smaller = Replay(4, np.random.default_rng(0))
    smaller.restore(replay.save(), made)
    assert smaller.save()["positions"].tolist() == [100, 110, 120, 130]
    del made[120]
    holed = Replay(9, np.random.default_rng(0))
    holed.restore(replay.save(), made)
    assert holed.save()["positions"].tolist() == [50, 60, 70, 80, 90, 100, 110, 130]


def test_all_that_is_remembered_comes_back(caplog):
    config = LearnerConfig()
    memory = remembering(config, (2, 2))
    made = {n: episode(3, seq=n) for n in range(30)}
    for n in range(10):
        memory.demonstrations.insert(made[n], n)
    rows, _ = memory.demonstrations.sample(8, np.random.default_rng(0))
    memory.demonstrations.update(rows, np.linspace(0.1, 2, 8))
    for n in range(10, 30):
        memory.monitor.add(made[n], n)
        memory.replay.insert(made[n], position=n)
    memory.means.update(EpisodeTerms(1.0, 2.0, 3.0))
    assert memory.live().tolist() == list(range(30))

    def restored(episodes):
        again = remembering(config, (2, 2))
        again.restore(memory.save(), lambda wanted: {p: episodes[p] for p in wanted & {*episodes}})
        return again

    again = restored(made)
    assert_same(again.save(), memory.save())
    assert again.monitor.status(1)["measured"] == 20
    assert again.monitor.status(1)["episodes_per_s"] == 0.0  # none of them has arrived now
    again.end_demonstrations()
    assert len(again.demonstrations) == 0 and again.live().tolist() == list(range(30))
    assert "not in the journal" not in caplog.text
    del made[3], made[12]
    assert restored(made).live().tolist() == [n for n in range(30) if n not in (3, 12)]
    assert "2 episodes that were in replay are not in the journal" in caplog.text


def test_nothing_comes_back_as_nothing():
    config = LearnerConfig()
    memory, again = (remembering(config, None) for _ in range(2))
    again.restore(memory.save(), lambda wanted: {})
    assert_same(again.save(), memory.save())
