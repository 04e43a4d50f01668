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
        tasks alike; "surprise": in proportion to a running mean of |R - V_traj(c)|, DigiRL's
        instruction-level advantage.
      floor: Share of the draws that goes to all tasks alike, whatever is known of them.
      rate: Of the running means: 0.2 is about the newest five outcomes of a task.
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
    """Keeps how surprising the outcomes of each task were.

    A task that was never played counts as fully surprising; a family of which nothing else is known
    is played soon.
    """

    def __init__(self, tasks: Sequence[Task], config: CurriculumConfig):
        self._config = config
        self._rows = {task.id: row for row, task in enumerate(tasks)}
        self._surprise = np.ones(len(tasks))

    def report(self, task_id: str, episode_return: float, instruction_value: float) -> None:
        """Takes in an outcome and what the critic made of the instruction; other tasks are none."""
        row = self._rows.get(task_id)
        if row is not None:
            surprise = abs(episode_return - instruction_value)
            self._surprise[row] += self._config.rate * (surprise - self._surprise[row])

    def weights(self) -> np.ndarray | None:
        """Returns the share of each task, float32 [tasks]; None: the actors are to choose."""
        if self._config.kind == "local":
            return None
        even = np.full(len(self._surprise), 1 / len(self._surprise))
        if self._config.kind == "uniform":
            return even.astype(np.float32)
        floor, surprise = self._config.floor, np.maximum(self._surprise, 1e-6)
        return (floor * even + (1 - floor) * surprise / surprise.sum()).astype(np.float32)

    def state(self) -> dict[str, float]:
        """Returns what `restore` takes, for a checkpoint."""
        return {name: float(self._surprise[row]) for name, row in self._rows.items()}

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from an earlier state; tasks that came since begin anew."""
        for name, surprise in state.items():
            if name in self._rows:
                self._surprise[self._rows[name]] = surprise
