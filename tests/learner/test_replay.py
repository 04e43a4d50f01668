"""Replay against slow twins: what is stored, what is sampled and how often."""

import dataclasses

import numpy as np
import pytest

from learner.replay import Replay
from learner.sum_tree import SumTree
from tests.episodes import episode


def check_tree(tree, weights):
    assert tree.total == pytest.approx(sum(weights), rel=1e-12, abs=1e-12)
    assert [tree[i] for i in range(tree.capacity)] == weights


@pytest.mark.parametrize("capacity", [1, 2, 5, 8, 13])
def test_tree_agrees_with_a_list_after_random_changes(capacity):
    rng, tree, weights = np.random.default_rng(capacity), SumTree(capacity), [0.0] * capacity
    for _ in range(500):
        slot = int(rng.integers(capacity))
        weights[slot] = float(rng.choice([0.0, 1e-6, 1.0, 1e6]) * rng.random())
        tree.set(slot, weights[slot])
    check_tree(tree, weights)


def test_tree_does_not_drift():
    tree, rng = SumTree(64), np.random.default_rng(0)
    for _ in range(20_000):
        tree.set(int(rng.integers(64)), float(10 ** rng.uniform(-6, 6)))
    for slot in range(64):
        tree.set(slot, 0.0)
    assert tree.total == 0.0


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0])
def test_tree_refuses_a_bad_weight_at_the_call_and_stays_whole(weight):
    tree = SumTree(4)
    tree.set(1, 2.0)
    with pytest.raises(ValueError, match="slot 2"):
        tree.set(2, weight)
    check_tree(tree, [0.0, 2.0, 0.0, 0.0])


def test_tree_samples_in_proportion():
    weights = np.array([0.0, 1.0, 2.0, 0.0, 5.0, 0.5, 1.5])
    tree, rng = SumTree(len(weights)), np.random.default_rng(1)
    for slot, weight in enumerate(weights):
        tree.set(slot, weight)
    # One stratum a call, so that the draws are independent and chi-square applies.
    counts = np.bincount(
        np.concatenate([tree.sample(1, rng) for _ in range(20_000)]), minlength=len(weights)
    )
    assert counts[0] == counts[3] == 0
    expected = 20_000 * weights / weights.sum()
    real = weights > 0
    chi_square = (np.square(counts - expected)[real] / expected[real]).sum()
    assert chi_square < 18.5  # 4 degrees of freedom, p = .001


def test_tree_never_draws_an_empty_slot_at_the_edge():
    class Highest:
        def random(self, count):
            return np.full(count, np.nextafter(1.0, 0.0))

    tree = SumTree(5)
    for slot, weight in enumerate([0.1, 0.2, 0.3]):
        tree.set(slot, weight)
    assert set(tree.sample(7, Highest()).tolist()) <= {0, 1, 2}


def test_an_empty_tree_says_so():
    with pytest.raises(ValueError, match="every weight is 0"):
        SumTree(3).sample(1, np.random.default_rng(0))


def test_every_new_episode_is_handed_out_once_and_whole():
    replay = Replay(16, np.random.default_rng(0))
    for seq in range(9):
        replay.insert(episode(length=5, seq=seq), weight=1e-9)  # priorities alone would miss some
    seen = [entry.episode.seq for _ in range(3) for entry in replay.sample(15)]
    assert seen == list(range(9))


def test_what_is_not_fresh_waits_for_its_turn():
    replay = Replay(8, np.random.default_rng(0))
    replay.insert(episode(length=5, seq=0), weight=1e-12, fresh=False)
    for seq in range(1, 4):
        replay.insert(episode(length=5, seq=seq), weight=1.0)
    assert [entry.episode.seq for entry in replay.sample(15)] == [1, 2, 3]


def test_the_oldest_is_evicted_and_a_late_update_is_counted():
    replay = Replay(3, np.random.default_rng(0))
    first = replay.insert(episode(seq=0))
    for seq in range(1, 4):
        replay.insert(episode(seq=seq))
    replay.update(first, 100.0, np.zeros(4, np.float32))
    assert replay.late_updates == 1
    seen = {entry.episode.seq for _ in range(20) for entry in replay.sample(100)}
    assert seen == {1, 2, 3}


def test_new_episodes_enter_at_the_largest_weight_so_far():
    replay = Replay(4, np.random.default_rng(0))
    handle = replay.insert(episode(seq=0))
    replay.update(handle, 50.0, np.zeros(4, np.float32))
    assert replay.weight(replay.insert(episode(seq=1))) == 50.0


def test_samples_follow_the_priorities():
    replay = Replay(8, np.random.default_rng(2))
    handles = [replay.insert(episode(length=4, seq=seq)) for seq in range(8)]
    replay.sample(32)  # each once while fresh
    for seq, handle in enumerate(handles):
        replay.update(handle, 1.0 + 9.0 * (seq == 5), np.zeros(4, np.float32))
    draws = [replay.sample(4)[0].episode.seq for _ in range(4000)]
    share = np.mean(np.array(draws) == 5)
    assert share == pytest.approx(10 / 17, abs=0.04)


def test_weight_zero_is_never_sampled_and_nothing_left_gives_nothing():
    replay = Replay(4, np.random.default_rng(0))
    replay.insert(episode(seq=0, success=False), weight=0.0)
    assert replay.sample(10) == []
    replay.insert(episode(seq=1))
    assert {e.episode.seq for _ in range(10) for e in replay.sample(100)} == {1}


def test_random_operations_keep_the_invariants():
    rng = np.random.default_rng(3)
    replay, handles, inserted = Replay(7, rng), [], 0
    for step in range(400):
        match rng.integers(3):
            case 0:
                length = int(rng.integers(1, 9))
                handles.append((replay.insert(episode(length=length, seq=step)), length, step))
                inserted += length
            case 1 if handles:
                handle, length, _ = handles[int(rng.integers(len(handles)))]
                replay.update(handle, float(rng.random() + 0.01), np.zeros(length, np.float32))
            case 2 if handles:
                entries = replay.sample(20)
                assert 0 < sum(len(entry.episode) for entry in entries) <= 20
                assert len({entry.handle for entry in entries}) == len(entries)
                alive = {seq for _, _, seq in handles[-7:]}
                assert {entry.episode.seq for entry in entries} <= alive
    assert replay.inserted_steps == inserted
    assert len(replay) == 7


def test_the_critic_learns_of_the_policys_own_episodes_alone():
    replay = Replay(10, np.random.default_rng(0))
    for seq in range(6):
        shown = dataclasses.replace(episode(2, seq=seq), source="expert" if seq % 2 else "policy")
        replay.insert(shown)
    drawn = replay.sample_uniform(100)
    assert sorted(entry.episode.seq for entry in drawn) == [0, 2, 4]


def test_the_top_share_is_of_the_positive_weights_and_never_empty():
    tree = SumTree(6)
    for slot, weight in enumerate([0.0, 5.0, 1.0, 5.0, 3.0]):
        tree.set(slot, weight)
    assert tree.top(0.01).tolist() == [1, 3]  # ties count
    assert tree.top(0.75).tolist() == [1, 3, 4]
    assert tree.top(1.0).tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="every weight is 0"):
        SumTree(3).top(0.5)


def test_with_a_top_share_the_draw_is_uniform_among_the_largest():
    replay = Replay(10, np.random.default_rng(0))
    for seq in range(10):
        replay.insert(episode(1, seq=seq), weight=float(seq + 1), fresh=False)
    counts = np.zeros(10)
    for _ in range(3000):
        for entry in replay.sample(1, top_share=0.3):
            counts[entry.episode.seq] += 1
    assert counts[:7].sum() == 0
    np.testing.assert_allclose(counts[7:] / counts.sum(), 1 / 3, atol=0.04)


def test_what_old_versions_acted_expires_but_no_demonstration():
    replay = Replay(6, np.random.default_rng(0))
    acted = {}
    for seq, version in enumerate([1, 2, 2, 5, 7]):
        one = episode(2, seq=seq)
        path = one.trajectory._replace(version=np.full(2, version))
        source = "expert" if seq == 1 else "policy"
        acted[seq] = replay.insert(dataclasses.replace(one, trajectory=path, source=source))
    replay.expire(oldest=5)
    assert [replay.weight(acted[seq]) > 0 for seq in range(5)] == [False, True, False, True, True]
    assert replay.expired == 2
    replay.update(acted[0], 9.0, np.zeros(2, np.float32))  # it had been sampled before
    assert replay.weight(acted[0]) == 0
    for seq in range(5, 12):  # round the ring, over what had expired
        one = episode(2, seq=seq)
        path = one.trajectory._replace(version=np.full(2, seq))
        replay.insert(dataclasses.replace(one, trajectory=path))
    replay.expire(oldest=9)
    seen = {entry.episode.seq for _ in range(30) for entry in replay.sample(20)}
    assert seen == {9, 10, 11}


def test_what_another_run_recorded_does_not_expire():
    replay = Replay(4, np.random.default_rng(0))
    old, new = (replay.insert(episode(2, seq=seq), fresh=seq > 0) for seq in range(2))
    replay.expire(oldest=5)  # both were acted by a version 1
    assert replay.weight(old) > 0 and replay.weight(new) == 0


def test_a_sweep_goes_round_what_can_be_sampled():
    replay = Replay(8, np.random.default_rng(0))
    for seq in range(6):
        replay.insert(episode(2, seq=seq), weight=float(seq != 3))
    swept = [[entry.episode.seq for entry in replay.sweep(4)] for _ in range(4)]
    assert swept == [[0, 1], [2, 4], [5, 0], [1, 2]]
    assert len(replay.sweep(1000)) == 5  # once round at the most
    assert Replay(3, np.random.default_rng(0)).sweep(10) == []
