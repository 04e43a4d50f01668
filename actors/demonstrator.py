"""The scripted expert as an agent: reads the screen over adb, and is disturbed now and then."""

from __future__ import annotations

import random
from typing import Protocol

from actors.environment import Observation
from actors.phone import expert
from actors.phone.nodes import Node, nodes_from_xml
from actors.policy import Policy
from actors.rollout import Move
from common import actions
from common.actions import Action, ActionType
from common.errors import ConfigError, DeviceError
from common.tasks import Task


class Device(Protocol):
    """What the expert needs of a phone."""

    def dump(self) -> str: ...


class Demonstrator:
    """Records the expert's actions; a disturbance takes the place of some and is not recorded.

    So what is recorded is also how to recover, which an undisturbed expert would never show (noise
    in demonstrations: Laskey et al., "DART", 2017).
    """

    source = "expert"

    def __init__(self, device: Device, policy: Policy, epsilon: float = 0.1):
        """Makes a demonstrator for simulated phones.

        Args:
          device: Where it reads the view tree.
          policy: Turns its actions into tokens.
          epsilon: Share of the steps that are disturbed.
        """
        self._device = device
        self._policy = policy
        self._epsilon = epsilon
        self._task: Task
        self._random = random.Random()

    def begin(self, task: Task, seed: int) -> None:
        self._task = task
        self._random = random.Random(f"{task.id} {seed}")

    def act(self, observation: Observation) -> Move:
        """Returns the expert's action, or a disturbance without a record."""
        if self._random.random() < self._epsilon:
            return Move(actions.render(disturbance(self._random)), None)
        text = actions.render(expert_action(self._device, self._task))
        return Move(text, self._policy.label(observation.prompt, observation.frame.image, text))


def expert_action(device: Device, task: Task) -> Action:
    """Returns the expert's action on what a phone shows.

    Raises:
      ConfigError: It has no script for the task's family.
      DeviceError: The views can't be read.
    """
    nodes = nodes_of(device)
    try:
        return expert.act(nodes, task)
    except KeyError as error:
        raise ConfigError(f"The expert has no script for the family {task.family!r}.") from error


def nodes_of(device: Device) -> list[Node]:
    """Reads the view tree, the whole screen first; DeviceError if there is none."""
    try:
        nodes = nodes_from_xml(device.dump())
    except ValueError as error:
        raise DeviceError(f"uiautomator's dump can't be read: {error}") from error
    if not nodes:
        raise DeviceError("uiautomator's dump shows no views.")
    return nodes


def disturbance(rng: random.Random) -> Action:
    """Draws something that a confused user might do: mostly a tap somewhere."""
    draw = rng.random()
    if draw < 0.6:
        point = round(rng.uniform(0.05, 0.95), 2), round(rng.uniform(0.05, 0.95), 2)
        return Action(ActionType.DUAL_POINT, point, point)
    if draw < 0.9:
        keys = (ActionType.PRESS_BACK, ActionType.PRESS_HOME, ActionType.PRESS_ENTER)
        return Action(rng.choice(keys))
    return Action(ActionType.DUAL_POINT, (0.8, 0.5), (0.2, 0.5))
