"""Measures a policy: one episode for each pair of task and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.environment import PhoneEnvironment
from actors.policy import Policy
from actors.rollout import PolicyAgent, Signature, run_episode
from common.tasks import Task
from common.types import Episode


def evaluate(
    environment: PhoneEnvironment,
    policy: Policy,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    temperature: float = 1.0,
) -> Iterator[Episode]:
    """Yields an episode for each task with the layout seed beside it.

    Episodes that measure nothing are left out: tasks that were done at the start, and phones that
    failed at once. Truncated ones are not; count them apart.

    Raises:
      DeviceError: The phone can't be reset.
    """
    agent = PolicyAgent(policy, temperature)
    for index, (task, seed) in enumerate(zip(tasks, seeds, strict=True)):
        signature = Signature("evaluate", "", index)
        episode = run_episode(environment, agent, task, seed, signature, temperature=temperature)
        if episode is not None:
            yield episode
