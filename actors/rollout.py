"""Runs one episode: an agent acts in the environment, and what it decided becomes a trajectory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from actors.environment import JUDGE, Observation, PhoneEnvironment, StepResult
from actors.policy import Decision, Policy
from common.errors import DeviceError
from common.tasks import Task
from common.types import Ending, Episode, Trajectory

_MAX_COUNT = 255  # `repeats` travels in a byte
_MAX_CAUSE = 1000  # characters; a device's error may quote what it printed


class Move(NamedTuple):
    """What to do next; without a decision it is done but not recorded."""

    text: str
    decision: Decision | None


class Agent(Protocol):
    """Whoever acts.

    Attributes:
      source: "policy" or "expert", as in `Episode`.
    """

    source: str

    def begin(self, task: Task, seed: int) -> None: ...
    def act(self, observation: Observation) -> Move: ...


@dataclasses.dataclass
class PolicyAgent:
    """Acts by the policy."""

    policy: Policy
    source: str = "policy"

    def begin(self, task: Task, seed: int) -> None:
        del task, seed

    def act(self, observation: Observation) -> Move:
        decision = self.policy.act(observation.prompt, observation.frame.image)
        return Move(decision.text, decision)


class Row(NamedTuple):
    """A recorded step."""

    observation: Observation
    decision: Decision
    result: StepResult


class Signature(NamedTuple):
    """Who sends an episode, and as which one."""

    actor: str
    boot: str
    seq: int


def run_episode(
    environment: PhoneEnvironment,
    agent: Agent,
    task: Task,
    seed: int,
    signature: Signature,
    *,
    lineage: int = 0,
    temperature: float = 1.0,
    keep_screens: bool = False,
    on_step: Callable[[], None] = lambda: None,
) -> Episode | None:
    """Runs one task to its end.

    Args:
      environment: The phone.
      agent: Acts.
      task: What it is asked to do.
      seed: The phone's layout.
      signature: Goes into the episode.
      lineage: Of the parameters; goes into the episode.
      temperature: At which the agent samples; goes into the episode.
      keep_screens: The episode carries the screens too.
      on_step: Called before each action; what it raises abandons the episode.

    Returns:
      The episode, or None if there is nothing to learn from: the task was done at the start, or no
      recorded step had an outcome.

    Raises:
      DeviceError: The phone failed before a recorded step had an outcome.
    """
    start = time.monotonic()
    observation = environment.reset(task, seed)
    if environment.already_done:
        return None
    agent.begin(task, seed)
    steps: list[Row | None] = []
    while True:
        on_step()
        move = agent.act(observation)
        result = environment.step(move.text)
        steps.append(Row(observation, move.decision, result) if move.decision is not None else None)
        observation = result.observation
        if result.ending is not None:
            break
    if environment.already_done:
        return None
    rows = _recorded(steps, result)
    if len(rows) <= (result.ending is Ending.TRUNCATED):
        cause, _, message = result.cause.partition(": ")
        if result.ending is Ending.TRUNCATED and cause != JUDGE:
            raise DeviceError(message, cause)
        return None
    return Episode(
        trajectory=_stack(rows, result),
        **signature._asdict(),
        source=agent.source,
        task_id=task.id,
        template=task.template,
        family=task.family,
        suite=task.suite,
        goal=task.goal,
        seed=seed,
        ending=result.ending,
        cause=result.cause[:_MAX_CAUSE],
        verdict=result.verdict.record() if result.verdict else {},
        lineage=lineage,
        temperature=temperature,
        duration_s=time.monotonic() - start,
        prompts=tuple(row.observation.prompt for row in rows),
        actions=tuple(row.decision.text for row in rows),
        screens=tuple(row.observation.frame.png for row in rows) if keep_screens else (),
    )


def _recorded(steps: list[Row | None], last: StepResult) -> list[Row]:
    """The steps to learn from: those before the success, if the judge saw it later."""
    rows = [row for row in steps[: len(steps) - last.late] if row is not None]
    if last.late and rows and rows[-1].result.invalid == "no_change":
        result = dataclasses.replace(rows[-1].result, invalid="")  # it completed the task
        rows[-1] = rows[-1]._replace(result=result)
    return rows


def _stack(rows: list[Row], last: StepResult) -> Trajectory:
    """Makes arrays of the rows; the last row carries the end of the episode.

    The action of a truncated episode's last row has no known outcome, so its mask is 0, and no
    discount is 0: the value of its state stands for the rest. Nor is an action learned from that
    the system disturbed.
    """
    truncated = last.ending is Ending.TRUNCATED
    steps = len(rows)
    decisions = [row.decision for row in rows]
    results = [row.result for row in rows]
    reward, discount = np.zeros(steps, np.float32), np.ones(steps, np.float32)
    mask = np.array([not result.disturbed for result in results], np.uint8)
    # A disturbance may have ended the episode: then the last recorded step gets what followed.
    reward[-1], discount[-1] = last.reward, float(truncated)
    if truncated:
        mask[-1] = 0
    return Trajectory(
        prompt_ids=np.stack([decision.prompt_ids for decision in decisions]),
        features=np.stack([decision.features for decision in decisions]),
        action_ids=np.stack([decision.action_ids for decision in decisions]),
        behaviour_log_probs=np.stack([decision.log_probs for decision in decisions]),
        reward=reward,
        discount=discount,
        invalid=np.array([bool(result.invalid) for result in results], np.uint8),
        repeats=np.array([min(result.repeats, _MAX_COUNT) for result in results], np.uint8),
        mask=mask,
        version=np.array([decision.version for decision in decisions], np.int64),
    )
