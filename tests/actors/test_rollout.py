"""What an episode becomes as a trajectory."""

import numpy as np
import pytest

from actors.environment import Observation, PhoneEnvironment
from actors.evaluators.state import StateJudge
from actors.policy import Decision
from actors.rollout import Move, Signature, run_episode
from common.errors import DeviceError
from common.types import Ending, Episode
from tests.actors.fakes import COMPLETE, NOTHING, TAP, FakeDevice, task


class Script:
    """Plays texts; those in brackets are not recorded."""

    source = "policy"

    def __init__(self, *texts: str | list[str]):
        self._texts = texts
        self._at = 0

    def begin(self, task, seed):
        self._at = 0

    def act(self, observation: Observation) -> Move:
        text = self._texts[self._at]
        self._at += 1
        if isinstance(text, list):
            return Move(text[0], None)
        ids = np.full(3, self._at, np.int32)
        features = observation.frame.image[:4, :4, 0]
        return Move(text, Decision(text, ids, features, ids, np.full(3, -0.5, np.float32), 4))


def run(count: int, *texts, device: FakeDevice | None = None, horizon: int = 9, **options):
    env = PhoneEnvironment(device or FakeDevice(), StateJudge(), {"general": horizon})
    signature = Signature("a", "b", 3)
    return run_episode(env, Script(*texts), task(count), 7, signature, lineage=2, **options)


def rows(episode: Episode) -> list[tuple]:
    t = episode.trajectory
    return list(zip(*(x.tolist() for x in (t.reward, t.discount, t.mask)), strict=True))


def test_a_success():
    episode = run(2, NOTHING, TAP, TAP, keep_screens=True)
    assert episode.ending is Ending.SUCCESS
    assert rows(episode) == [(0, 1, 1), (0, 1, 1), (1, 0, 1)]
    assert episode.trajectory.invalid.tolist() == [1, 0, 0]
    assert episode.trajectory.repeats.tolist() == [0, 0, 1]
    assert episode.trajectory.version.tolist() == [4, 4, 4]
    assert episode.trajectory.action_ids.tolist() == [[1] * 3, [2] * 3, [3] * 3]
    assert (episode.actor, episode.boot, episode.seq, episode.lineage) == ("a", "b", 3, 2)
    assert episode.actions == (NOTHING, TAP, TAP)
    assert episode.verdict["status"] == "success"
    assert len(episode.screens) == 3
    assert not run(1, TAP).screens


@pytest.mark.parametrize(
    ("texts", "ending"), [((TAP, COMPLETE), Ending.GAVE_UP), ((TAP, TAP), Ending.HORIZON)]
)
def test_a_failure_is_a_termination(texts, ending):
    episode = run(9, *texts, horizon=2)
    assert episode.ending is ending
    assert rows(episode) == [(0, 1, 1), (0, 0, 1)]


def test_a_device_failure_leaves_its_last_state_to_bootstrap_from():
    device = FakeDevice()
    device.fail_at = 6  # reset and first checks are 2 calls, a tap and its checks 2 more
    episode = run(9, TAP, TAP, device=device)
    assert episode.ending is Ending.TRUNCATED
    assert "gone" in episode.cause
    assert rows(episode) == [(0, 1, 1), (0, 1, 0)]


def test_a_phone_that_fails_before_the_first_outcome_is_its_owner_s_business():
    device = FakeDevice()
    device.fail_at = 3
    with pytest.raises(DeviceError, match="gone"):
        run(9, TAP, device=device)


def test_disturbances_are_played_and_not_recorded():
    episode = run(3, TAP, [TAP], TAP)
    assert episode.actions == (TAP, TAP)
    assert rows(episode) == [(0, 1, 1), (1, 0, 1)]
    assert episode.trajectory.repeats.tolist() == [0, 2]


def test_a_disturbance_that_ends_the_episode_ends_the_last_recorded_step():
    assert rows(run(2, TAP, [TAP])) == [(1, 0, 1)]


def test_an_episode_without_a_recorded_step_is_none():
    assert run(1, [TAP]) is None


def test_a_task_that_is_done_already_is_none():
    assert run(0, TAP) is None


def test_on_step_can_abandon_an_episode():
    def stop() -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError):
        run(9, TAP, on_step=stop)
