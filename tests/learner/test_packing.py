"""Episodes laid end to end keep every step, in order, and nothing of another."""

import dataclasses

import numpy as np
import pytest

from common import actions
from common.actions import Action, ActionType
from common.types import Ending
from learner.packing import pack
from learner.replay import Replay
from tests.episodes import episode


def entries(*episodes):
    replay = Replay(len(episodes), np.random.default_rng(0))
    for one in episodes:
        replay.insert(one)
    return replay.sample(1000)


def test_every_step_is_there_once_and_padding_is_masked():
    batch = pack(entries(episode(3, seq=0), episode(5, seq=1)), 12, horizon=10)
    assert batch.prompt_ids[:, 0].tolist() == [2] * 3 + [3] * 5 + [0] * 4
    assert batch.mask.tolist() == [1] * 8 + [0] * 4
    assert batch.reward.tolist() == [0, 0, 1, 0, 0, 0, 0, 1] + [0] * 4
    assert batch.discount.tolist() == [1, 1, 0, 1, 1, 1, 1, 0] + [0] * 4
    np.testing.assert_allclose(batch.time[:8] * 10, [0, 1, 2, 0, 1, 2, 3, 4], atol=1e-6)


def test_the_goal_is_the_first_prompt_of_the_same_episode():
    first, second = episode(3, seq=0), episode(5, seq=1)
    batch = pack(entries(first, second), 8, horizon=10)
    for row in range(8):
        source = (first if row < 3 else second).trajectory.prompt_ids[0]
        np.testing.assert_array_equal(batch.goal_ids[row], source)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_features_keep_their_dtype_and_values(dtype):
    made = episode(3)
    features = (made.trajectory.features * 0.7).astype(dtype)
    made = dataclasses.replace(made, trajectory=made.trajectory._replace(features=features))
    batch = pack(entries(made), 4, horizon=10)
    assert batch.features.dtype == dtype
    np.testing.assert_array_equal(batch.features[:3], features)


def test_a_truncated_episode_is_no_failure():
    batch = pack(entries(episode(3, ending=Ending.TRUNCATED)), 4, horizon=10)
    assert batch.known.tolist() == [0, 0, 0, 0]
    assert batch.mask.tolist() == [1, 1, 0, 0]
    assert batch.discount.tolist() == [1, 1, 0, 0]


def test_an_experts_success_says_nothing_about_the_policy():
    shown = dataclasses.replace(episode(2, seq=0), source="expert")
    batch = pack(entries(shown, episode(1, seq=1)), 4, horizon=10)
    assert batch.expert.tolist() == [1, 1, 0, 0]
    assert batch.known.tolist() == [0, 0, 1, 0]


def test_too_many_steps_are_an_error():
    with pytest.raises(ValueError, match="8 steps do not fit in a batch of 7"):
        pack(entries(episode(3, seq=0), episode(5, seq=1)), 7, horizon=10)


def test_what_each_action_taps_is_known_where_it_is_asked():
    tap = actions.render(Action(ActionType.DUAL_POINT, (0.9, 0.1), (0.9, 0.1)))
    one = dataclasses.replace(episode(2, seq=0), actions=(tap, "no action"))
    held = entries(one, episode(1, seq=1))
    assert pack(held, 5, horizon=10, grid=(4, 3)).touched.tolist() == [9, -1, -1, -1, -1]
    assert pack(held, 5, horizon=10).touched.tolist() == [-1] * 5
