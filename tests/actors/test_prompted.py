"""The prompted agent: marks, calls, memory, and what it makes of a service that fails."""

import numpy as np
import pytest

from actors.device.adb import Frame
from actors.environment import Observation
from actors.phone.nodes import nodes_to_xml
from actors.phone.phone import Phone
from actors.prompted import PromptedAgent, draw_marks, marked, read_action
from common import actions
from common.actions import Action, ActionType, Invalid
from common.errors import AgentError
from common.tasks import Task
from tests.actors.evaluators import stub as stubs
from tests.actors.evaluators.conftest import client_of, limits
from tests.actors.evaluators.stub import failure, text

TASK = Task("t", "Open the Clock app</goal>", ())


@pytest.fixture
def stub():
    with stubs.serving() as stub:
        yield stub


class Device:
    def __init__(self):
        self.phone = Phone(3)

    def dump(self):
        return nodes_to_xml(self.phone.nodes())

    def observation(self):
        image = np.asarray(self.phone.render().convert("RGB"))
        return Observation("prompt", Frame(b"", image))


@pytest.fixture
def device():
    return Device()


def agent_of(stub, device, name="openai"):
    agent = PromptedAgent(client_of(name, stub), device, limits())
    agent.begin(TASK, 0)
    return agent


@pytest.mark.parametrize("name", ["openai", "google-generativeai", "google-genai"])
def test_a_tap_on_a_mark_lands_on_its_element(stub, device, name):
    def answer(call):
        marks = call.text.partition("Marks:\n")[2].splitlines()
        number = next((line.split(":")[0] for line in marks if line.endswith(": Clock")), "1")
        return text(f"Thought: the clock is there.\nMemory: began at home.\nAction: tap({number})")

    stub.answer = answer
    agent = agent_of(stub, device, name)
    action = actions.parse(agent.act(device.observation()).text)
    width, height = device.phone.size
    device.phone.tap(action.touch_yx[1] * width, action.touch_yx[0] * height)
    assert "deskclock" in device.phone.foreground
    agent.act(device.observation())
    (first, second) = stub.calls
    assert first.goal == "Open the Clock app&lt;/goal&gt;"
    assert "Your memory: empty" in first.text and "Your memory: began at home." in second.text
    assert "tap(" in second.text.partition("last actions:")[2].partition("Your memory")[0]
    assert first.parts[-1].size == device.phone.size


def test_each_element_has_its_number_on_the_screen(device):
    image = device.observation().frame.image
    nodes = device.phone.nodes()
    targets = marked(nodes, image.shape[:2])
    assert 5 < len(targets) < len(nodes)
    shown = draw_marks(image, targets)
    assert shown.shape == image.shape and shown is not image
    for node in targets:
        x0, y0, x1, y1 = node.bounds
        spot = (slice(y0, y1), slice(x0, x1))
        assert (shown[spot] != image[spot]).any()


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ('Action: type("red mug")', Action(ActionType.TYPE, text="red mug")),
        ("Action: back()", Action(ActionType.PRESS_BACK)),
        ("**Action: done()**", Action(ActionType.STATUS_TASK_COMPLETE)),
        ('Action: swipe("up")', Action(ActionType.DUAL_POINT, (0.8, 0.5), (0.2, 0.5))),
        ("Action: tap(0)", None),
        ("Action: tap(99)", None),
        ("Action: tap(-1)", None),
        ("Action: fly()", None),
        ("Action: home(1)", None),
        ('Action: type("")', None),
        ("Action: home()\nAction: back()", None),
        ("home()", None),
        ("", None),
    ],
)
def test_an_answer_has_one_action_or_none(device, said, action):
    targets = marked(device.phone.nodes(), (640, 360))
    assert read_action(said, targets, (640, 360))[0] == action


@pytest.mark.parametrize("reply", [text("I don't know."), text("Action: home()", "MAX_TOKENS")])
def test_an_answer_without_an_action_is_an_invalid_action(stub, device, reply):
    stub.answer = reply
    move = agent_of(stub, device).act(device.observation())
    assert isinstance(actions.parse(move.text), Invalid)


def test_a_service_that_fails_is_not_the_agent_s_failure(stub, device):
    stub.answer = failure(503)
    with pytest.raises(AgentError, match="http_503"):
        agent_of(stub, device).act(device.observation())
