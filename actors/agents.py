"""Agents to compare the policy with, and the policy as one that can be repeated."""

from __future__ import annotations

import random
from typing import Protocol

from actors.demonstrator import disturbance, expert_action
from actors.environment import Observation
from actors.policy import Policy
from actors.rollout import Move
from common import actions
from common.tasks import Task


class RepeatablePolicy:
    """The policy, whose draws depend on the episode alone."""

    source = "policy"

    def __init__(self, policy: Policy, seed: int):
        self._policy = policy
        self._seed = seed

    def begin(self, task: Task, seed: int) -> None:
        del task
        self._policy.reseed((self._seed + seed) % 2**31)

    def act(self, observation: Observation) -> Move:
        decision = self._policy.act(observation.prompt, observation.frame.image)
        return Move(decision.text, decision)


class RandomAgent:
    """Does what a confused user might do: mostly taps anywhere."""

    source = "policy"

    def __init__(self, seed: int):
        self._seed = seed
        self._random = random.Random()

    def begin(self, task: Task, seed: int) -> None:
        del task
        self._random = random.Random(f"{self._seed} {seed}")

    def act(self, observation: Observation) -> Move:
        del observation
        return Move(actions.render(disturbance(self._random)), None)


class Device(Protocol):
    """What an agent that reads the view tree needs of a phone."""

    def dump(self) -> str: ...


class ScriptedExpert:
    """The expert of the simulated phone, undisturbed."""

    source = "expert"

    def __init__(self, device: Device):
        self._device = device
        self._task: Task

    def begin(self, task: Task, seed: int) -> None:
        del seed
        self._task = task

    def act(self, observation: Observation) -> Move:
        """Returns its action.

        Raises:
          ConfigError: It has no script for the task's family.
          DeviceError: The views can't be read.
        """
        del observation
        return Move(actions.render(expert_action(self._device, self._task)), None)
