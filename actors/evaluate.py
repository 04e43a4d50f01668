"""Measures a policy: one episode for each pair of task and seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from actors.environment import PhoneEnvironment
from actors.policy import Policy
from actors.rollout import PolicyAgent, Signature, run_episode
from common.tasks import Task
from common.types import Ending


@dataclasses.dataclass(frozen=True)
class Result:
    """How one episode went.

    Attributes:
      seed: The phone's layout.
      cause: What failed, for a truncated one.
      steps: Actions that were taken.
      invalid: How many of them were invalid or changed nothing.
    """

    task_id: str
    template: str
    family: str
    suite: str
    seed: int
    ending: Ending
    cause: str
    steps: int
    invalid: int

    @property
    def success(self) -> bool:
        return self.ending is Ending.SUCCESS


def evaluate(
    environment: PhoneEnvironment,
    policy: Policy,
    tasks: Iterable[Task],
    seeds: Iterable[int],
) -> Iterator[Result]:
    """Runs each task with the layout seed beside it, and yields how it went.

    Tasks that were done at the start measure nothing and are left out; truncated episodes are not:
    count them apart.

    Raises:
      DeviceError: The phone can't be reset.
    """
    agent = PolicyAgent(policy)
    for task, seed in zip(tasks, seeds, strict=True):
        episode = run_episode(environment, agent, task, seed, Signature("evaluate", "", 0))
        if episode is not None:
            yield Result(
                task.id,
                task.template,
                task.family,
                task.suite,
                seed,
                episode.ending,
                episode.cause,
                len(episode),
                int(episode.trajectory.invalid.sum()),
            )
