"""DigiRL's and DistRL's trajectories as episodes; tests/parity reads their files."""

import numpy as np
import pytest

from common import actions
from common.actions import Action, ActionType
from common.codec import EpisodeSpec, decode_episode, encode_episode
from common.messages import unpack
from common.models.text import Tokenizer, grammar_corpus
from common.types import Ending
from learner.digirl_pt import Converter, UnusableError

TAP = actions.render(Action(ActionType.DUAL_POINT, (0.25, 0.5), (0.25, 0.5)))
BACK = actions.render(Action(ActionType.PRESS_BACK))
DONE = actions.render(Action(ActionType.STATUS_TASK_COMPLETE))
TOKENIZER = Tokenizer.train(grammar_corpus(), 900)
SPEC = EpisodeSpec(64, 64, 1, 8, 960, "float32")
CONVERT = Converter(SPEC, TOKENIZER, "trajectories.pt")


def features(value, frames=1):
    return np.arange(8 * frames, dtype=np.float32) + np.float32(value)


def step(action, *, reward=0.0, done=0.0, at=0.0, after=None, frames=1, goal="Open Maps"):
    return {
        "observation": f"Previous Actions: Goal: {goal}</s>",
        "action": action,
        "task": "",
        "reward": reward,
        "done": done,
        "image_features": features(at, frames),
        "next_image_features": features(at + 1 if after is None else after, frames),
    }


def test_texts_actions_rewards_and_features_are_kept():
    made = CONVERT(4, [step(TAP), step(BACK, at=1), step(DONE, at=2, reward=1.0, done=1.0)])
    assert made.goal == "Open Maps" and made.actions == (TAP, BACK, DONE)
    assert made.prompts[0] == "Previous Actions: Goal: Open Maps"  # its end token is not text
    assert (made.ending, made.source, made.seq) == (Ending.SUCCESS, "recorded", 4)
    path = made.trajectory
    assert path.reward.tolist() == [0, 0, 1] and path.discount.tolist() == [1, 1, 0]
    np.testing.assert_array_equal(path.features[:, 0], [features(0), features(1), features(2)])
    assert [TOKENIZER.decode(ids) for ids in path.action_ids] == [TAP, BACK, DONE]
    assert TOKENIZER.decode(path.prompt_ids[1]) == made.prompts[1]
    assert path.mask.all() and (path.version == -1).all()


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (step(TAP, reward=1.0, done=1.0), Ending.SUCCESS),
        (step(DONE, done=1.0), Ending.GAVE_UP),
        (step(TAP, done=1.0), Ending.HORIZON),
        (step(TAP), Ending.TRUNCATED),
    ],
)
def test_how_it_ended_and_that_the_wire_takes_it(last, ending):
    made = CONVERT(0, [step(TAP), last])
    assert made.ending is ending
    read = decode_episode(*unpack(encode_episode(made)), SPEC)
    assert read.ending is ending and read.success == (ending is Ending.SUCCESS)


def test_stacked_frames_give_the_newest():
    made = CONVERT(0, [step(TAP, frames=2), step(DONE, frames=2, done=1.0)])
    np.testing.assert_array_equal(made.trajectory.features[0, 0], np.arange(8, 16))


def test_what_is_invalid_changes_nothing_or_repeats_is_marked():
    empty = actions.render(Action(ActionType.TYPE, text=""))
    steps = [
        step("Action Plan: [what]"),
        step(empty, at=1),
        step(TAP, at=2),
        step(TAP, at=3, after=3),  # nothing changed
        step(TAP, at=3),
        step(DONE, at=4, after=4, done=1.0),  # a status changes no screen
    ]
    path = CONVERT(0, steps).trajectory
    assert path.invalid.tolist() == [1, 1, 0, 1, 0, 0]
    assert path.repeats.tolist() == [0, 0, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([], "0 steps"),
        ([step(TAP)], "one step without an outcome"),
        ([step(TAP, done=1.0), step(TAP, done=1.0)], "done before the last step"),
        ([step(TAP, done=1.0) | {"image_features": None}], "no features, and the model takes 8"),
        ([step(TAP, done=1.0) | {"image_features": np.ones(9)}], "9 features"),
        ([step(TAP * 9, done=1.0)], "the tokenizer can't write"),
    ],
)
def test_a_trajectory_that_is_no_episode_says_why(steps, reason):
    with pytest.raises(UnusableError, match=reason):
        CONVERT(0, steps)
