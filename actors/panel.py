"""What is evaluated: tasks with the phone layout of each, named by a hash."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import json
import pathlib
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from common.errors import ConfigError
from common.tasks import Task, load_tasks

LAYOUT_SEEDS = 1_000_000_000  # phone layouts from here on are never trained on
_DEFAULT_STEPS = 20  # of a suite whose horizon nobody says


class Entry(NamedTuple):
    """A task on a phone with this layout."""

    task: Task
    seed: int


@dataclasses.dataclass(frozen=True)
class Preset:
    """A published protocol.

    Attributes:
      suite: Of the tasks.
      count: The first so many test tasks, in their order.
      steps: The most of an episode.
      temperature: At which actions are sampled.
      source: Where this is written.
    """

    suite: str
    count: int
    steps: int
    temperature: float
    source: str


_DIGIRL = "Bai et al. 2024, section 5 and the released scripts/config/main/default.yaml"
_DISTRL = "Wang et al. 2024, section 6: 128 test tasks; steps and temperature as in DigiRL"
PRESETS = {
    "paper-general": Preset("general", 128, 10, 1.0, _DISTRL),
    "paper-webshop": Preset("webshop", 128, 20, 1.0, _DISTRL),
    "digirl-general": Preset("general", 96, 10, 1.0, _DIGIRL),
    "digirl-webshop": Preset("webshop", 96, 20, 1.0, _DIGIRL),
}


@dataclasses.dataclass(frozen=True)
class Panel:
    """A fixed list of entries.

    Attributes:
      entries: In the order of the report.
      horizon: The most steps of an episode, by suite.
    """

    entries: tuple[Entry, ...]
    horizon: Mapping[str, int]

    @property
    def hash(self) -> str:
        """Names tasks, checks, layouts and step limits: reports with one hash can be compared."""
        rows = [
            [dataclasses.asdict(task), seed, self.horizon[task.suite]]
            for task, seed in self.entries
        ]
        text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw(
    tasks: Iterable[Task], count: int, seed: int, horizon: Mapping[str, int], shuffle: bool = True
) -> Panel:
    """Makes a panel with an even share of all tasks, also where there are more than `count`.

    Args:
      tasks: Come again where there are fewer than `count`, with other layouts.
      count: Of entries.
      seed: Of order and layouts.
      horizon: The most steps, by suite.
      shuffle: Else the first `count` tasks in their order.
    """
    rng, tasks = random.Random(seed), list(tasks)
    if shuffle:
        rng.shuffle(tasks)
    chosen = list(itertools.islice(itertools.cycle(tasks), count))
    entries = tuple(Entry(task, LAYOUT_SEEDS + rng.randrange(10**9)) for task in chosen)
    missing = dict.fromkeys({task.suite for task in chosen} - set(horizon), _DEFAULT_STEPS)
    return Panel(entries, {**horizon, **missing})


def load(spec: str) -> tuple[Task, ...]:
    """Returns the tasks of a spec of `common.tasks`, or of a text file with an instruction a line.

    A text file's tasks have no checks: they need a judge that looks.

    Raises:
      ConfigError: There are no such tasks.
    """
    path = pathlib.Path(spec)
    if path.suffix != ".txt":
        return load_tasks(spec)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Instructions can't be read from {path}: {error}.") from error
    goals = [line.strip() for line in lines if line.strip()]
    if not goals:
        raise ConfigError(f"{path} holds no instruction; write one a line.")
    suite = "webshop" if "webshop" in path.stem else "general"
    return tuple(
        Task(f"{path.stem}-{number}", goal, (), suite=suite, template=path.stem)
        for number, goal in enumerate(goals)
    )


def repeated(tasks: Iterable[Task]) -> tuple[str, ...]:
    """Returns the goals that more than one task has."""
    counts = collections.Counter(_plain(task.goal) for task in tasks)
    return tuple(sorted(goal for goal, count in counts.items() if count > 1))


def overlap(tasks: Iterable[Task], training: Iterable[Task]) -> tuple[str, ...]:
    """Returns the goals of tasks that are trained on too, but for case and spaces."""
    trained = {_plain(task.goal) for task in training}
    return tuple(sorted({_plain(task.goal) for task in tasks} & trained))


def _plain(goal: str) -> str:
    return " ".join(goal.lower().split())
