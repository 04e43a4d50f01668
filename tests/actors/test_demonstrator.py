"""The expert on the actor: from the view tree's XML to labelled actions."""

import random

import numpy as np
import pytest

from actors.demonstrator import Demonstrator, disturbance
from actors.device.adb import Frame
from actors.environment import Observation
from actors.phone.nodes import nodes_to_xml
from actors.phone.phone import Phone
from common import actions
from common.actions import Action
from common.errors import ConfigError, DeviceError
from common.tasks import Check, Task, load_tasks

TASK = next(task for task in load_tasks("all-train") if task.family == "turn_on")
OBSERVATION = Observation("prompt", Frame(b"", np.zeros((9, 9, 3), np.uint8)))


class FakePolicy:
    def label(self, prompt, image, text):
        return prompt, text


class FakeDevice:
    def __init__(self, phone: Phone):
        self._phone = phone

    def dump(self) -> str:
        return nodes_to_xml(self._phone.nodes())


def demonstrator(epsilon: float, task: Task = TASK) -> Demonstrator:
    made = Demonstrator(FakeDevice(Phone(3)), FakePolicy(), epsilon)
    made.begin(task, 0)
    return made


@pytest.mark.parametrize("dump", ["", "nope", "<hierarchy/>", "<hierarchy><node/></hierarchy>"])
def test_a_broken_dump_is_the_device_s_failure(dump, monkeypatch):
    monkeypatch.setattr(FakeDevice, "dump", lambda self: dump)
    with pytest.raises(DeviceError, match="dump"):
        demonstrator(0).act(OBSERVATION)


def test_the_expert_s_action_is_labelled():
    text, decision = demonstrator(0).act(OBSERVATION)
    assert isinstance(actions.parse(text), Action)
    assert decision == ("prompt", text)


def test_disturbances_are_as_frequent_as_asked_and_not_labelled():
    agent = demonstrator(0.3)
    moves = [agent.act(OBSERVATION) for _ in range(400)]
    assert 80 < sum(move.decision is None for move in moves) < 160  # 120 +- 9
    assert all(isinstance(actions.parse(move.text), Action) for move in moves)


def test_a_seed_repeats_its_disturbances():
    first, second = demonstrator(0.5), demonstrator(0.5)
    assert [first.act(OBSERVATION) for _ in range(9)] == [second.act(OBSERVATION) for _ in range(9)]


def test_disturbances_end_no_episode():
    rng = random.Random(0)
    assert not any(disturbance(rng).is_status for _ in range(200))


def test_a_task_without_a_script_is_named():
    stranger = demonstrator(0, Task("t", "g", (Check("true", ""),), family="odd"))
    with pytest.raises(ConfigError, match="'odd'"):
        stranger.act(OBSERVATION)
