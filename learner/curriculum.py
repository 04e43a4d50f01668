"""Which tasks the actors play: all alike, or more of those whose outcome is not foreseen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from common.errors import ConfigError
from common.tasks import Task

KINDS = ("local", "uniform", "surprise")


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    """Who chooses tasks and how.

    Attributes:
      kind: "local": each actor by its own successes, see `common.tasks.TaskSampler`; "uniform": all
        tasks alike; "surprise": in proportion to the mean of |R - V_traj(c)| that is expected, the
        size of DigiRL's instruction-level advantage.
      floor: Share of the draws that goes to all tasks alike, whatever is known of them.
      rate: Of the running mean of a task's success: 0.2 is about the newest five outcomes.
    """

    kind: str = "local"
    floor: float = 0.2
    rate: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"curriculum.kind must be one of {KINDS}, not {self.kind!r}.")
        if not (0 < self.floor <= 1 and 0 < self.rate <= 1):
            raise ConfigError(
                f"curriculum.floor and rate must be above 0 and at most 1: {self.floor}, "
                f"{self.rate}."
            )


class Curriculum:
    """Keeps each task's success and what the critic makes of its instruction.

    With success p and instruction value V, |R - V| is p (1 - V) + (1 - p) V in the mean. Every
    outcome counts once, when it arrives, however often it is replayed. A task that was never played
    counts as a success that nobody foresaw, the largest surprise.
    """

    def __init__(self, tasks: Sequence[Task], config: CurriculumConfig):
        self._config = config
        self._rows = {task.id: row for row, task in enumerate(tasks)}
        self._success = np.ones(len(tasks))  # a running mean
        self._value = np.zeros(len(tasks))  # the newest

    def see_outcome(self, task_id: str, success: bool) -> None:
        """Takes in how the policy did at a task; one of another file is none."""
        if (row := self._rows.get(task_id)) is not None:
            self._success[row] += self._config.rate * (success - self._success[row])

    def see_value(self, task_id: str, instruction_value: float) -> None:
        """Takes in V_traj(c), in 0..1, of a task's instruction."""
        if (row := self._rows.get(task_id)) is not None:
            self._value[row] = instruction_value

    def weights(self) -> np.ndarray | None:
        """Returns the share of each task, float32 [tasks]; None: the actors are to choose."""
        if self._config.kind == "local":
            return None
        even = np.full(len(self._rows), 1 / len(self._rows))
        if self._config.kind == "uniform":
            return even.astype(np.float32)
        floor, p, v = self._config.floor, self._success, self._value
        surprise = np.maximum(p * (1 - v) + (1 - p) * v, 1e-6)
        return (floor * even + (1 - floor) * surprise / surprise.sum()).astype(np.float32)

    def state(self) -> dict[str, tuple[float, float]]:
        """Returns what `restore` takes, for a checkpoint: success and value of each task."""
        numbers = zip(self._success.tolist(), self._value.tolist(), strict=True)
        return dict(zip(self._rows, numbers, strict=True))

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Goes on from an earlier state; tasks that came since begin anew."""
        for name in state.keys() & self._rows.keys():
            row = self._rows[name]
            self._success[row], self._value[row] = state[name]
