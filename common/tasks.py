"""Tasks: an instruction, how to prepare the device for it, and how to see that it is done.

The built-in tasks are made from the templates of `task_templates.yaml`, which says how; a file of a
user's own holds them one by one:

    tasks:
      - id: dark
        goal: Turn on dark theme
        setup: [settings put secure ui_night_mode 1]
        checks: [{shell: settings get secure ui_night_mode, matches: "^2$"}]
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import random
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import yaml

from common.errors import ConfigError

_TEMPLATES = Path(__file__).parent / "task_templates.yaml"
SUITES = ("general", "webshop")
# A spec's second word, and the splits that it takes in.
PARTS = {"train": ("train",), "test": ("test",), "practice": ("train", "made-up")}
SPECS = tuple(f"{suite}-{part}" for suite in (*SUITES, "all") for part in PARTS)

_EVERY = 4  # every 4th value of a pool is kept for the test
_MOST = {"train": 40, "test": 8}  # tasks of one template; of more combinations some are drawn
_MADE_UP = 4  # made-up tasks of one template
_TEMPLATE_FIELDS = ("family", "goal", "fold", "every", "query", "keys")


@dataclasses.dataclass(frozen=True)
class Check:
    """Holds if the output of one adb shell command matches (`re.search`, MULTILINE)."""

    shell: str
    matches: str

    def holds(self, stdout: str) -> bool:
        return re.search(self.matches, stdout, re.MULTILINE) is not None


@dataclasses.dataclass(frozen=True)
class Task:
    """One instruction.

    Attributes:
      setup: adb shell commands to run after the device was reset.
      checks: All must hold for the task to be done; none of them may hold after the setup.
      values: What the template's slots hold, for the scripted expert.
    """

    id: str
    goal: str
    checks: tuple[Check, ...]
    setup: tuple[str, ...] = ()
    template: str = "custom"
    family: str = "custom"
    suite: str = "custom"
    split: str = "test"
    values: tuple[tuple[str, str], ...] = ()

    def value(self, name: str) -> str:
        return dict(self.values)[name]


def load_tasks(spec: str) -> tuple[Task, ...]:
    """Returns the tasks that a spec names.

    Args:
      spec: One of SPECS, such as "general-train", or the path of a YAML file of tasks.

    Raises:
      ConfigError: There is no such set or file, or the file is not one of tasks.
    """
    if spec in SPECS:
        suite, part = spec.split("-")
        return tuple(
            task
            for task in builtin_tasks()
            if task.split in PARTS[part] and suite in ("all", task.suite)
        )
    path = Path(spec)
    if not path.is_file():
        raise ConfigError(
            f"There are no tasks {spec!r}: give one of {', '.join(SPECS)}, or a YAML file."
        )
    return read_tasks(path)


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Reads a file of tasks; ConfigError says what is wrong with it and where."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    where = str(path)
    _require_fields(where, document, required=("tasks",))
    entries = document["tasks"]
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{where}: 'tasks' must be a list with at least one task.")
    tasks = tuple(_task(f"{where}, task {i + 1}", entry) for i, entry in enumerate(entries))
    ids = [task.id for task in tasks]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise ConfigError(f"{where}: the id {twice[0]!r} comes twice.")
    return tasks


@functools.cache
def builtin_tasks() -> tuple[Task, ...]:
    """All tasks of the simulated phone, in the order of their templates."""
    document = yaml.safe_load(_TEMPLATES.read_text(encoding="utf-8"))
    pools = {name: [_named(entry) for entry in pool] for name, pool in document["pools"].items()}
    free = {pool: pools[pool] for pool in document["free"]}
    tasks = []
    for name, template in document["templates"].items():
        _require_fields(f"template {name}", template, ("family", "goal", "fold"), _TEMPLATE_FIELDS)
        family = document["families"][template["family"]]
        for split in ("train", "test"):
            tasks += _expand(name, template, family, pools, split)
        tasks += _make_up(name, template, family, pools, free)
    kept_apart = {task.goal for task in tasks if task.split == "test"}
    return tuple(t for t in tasks if t.split != "made-up" or t.goal not in kept_apart)


def digest(tasks: Sequence[Task]) -> str:
    """Returns what tells a list of tasks from others: tasks are known by their place in it."""
    return hashlib.sha256("\n".join(task.id for task in tasks).encode()).hexdigest()[:16]


class TaskSampler:
    """An endless draw of tasks: by the learner's weights, or by what this actor has seen.

    On its own it draws half of them uniformly, which keeps every task in play, and half by
    template, more of those that fail: a template's weight is 1 minus its success in what was
    reported, and at least `FLOOR`. What is known by heart teaches nothing more, and what fails has
    few successes to learn from.
    """

    FLOOR = 0.05
    RATE = 0.1  # of a template's running success: about its 10 newest episodes

    def __init__(self, tasks: Sequence[Task], seed: int):
        if not tasks:
            raise ConfigError("There are no tasks to sample from.")
        self._tasks = tuple(tasks)
        self._rng = random.Random(seed)
        self._templates: dict[str, list[Task]] = {}
        for task in self._tasks:
            self._templates.setdefault(task.template, []).append(task)
        self._success = dict.fromkeys(self._templates, 0.0)

    def next(self, weights: Sequence[float] | np.ndarray | None = None) -> Task:
        """Draws a task, by `weights` if they are given and one for each task."""
        if weights is not None and len(weights) == len(self._tasks):
            return self._rng.choices(self._tasks, list(map(float, weights)))[0]
        if self._rng.random() < 0.5:
            return self._rng.choice(self._tasks)
        failing = [max(1 - success, self.FLOOR) for success in self._success.values()]
        (template,) = self._rng.choices(list(self._success), failing)
        return self._rng.choice(self._templates[template])

    def report(self, task: Task, success: bool) -> None:
        """Takes in how the policy did at a task."""
        self._success[task.template] += self.RATE * (success - self._success[task.template])


def _expand(
    name: str,
    template: Mapping[str, Any],
    family: Mapping[str, Any],
    pools: Mapping[str, list[dict[str, str]]],
    split: str,
) -> list[Task]:
    """Makes the tasks of one template and split."""
    slots = _slots(template)
    choices = [_side(slot, pools[slot.rstrip("2")], template, split) for slot in slots]
    combinations = [c for c in itertools.product(*choices) if len({v["name"] for v in c}) == len(c)]
    # The name seeds the draw, so a new template leaves the tasks of the others as they are.
    combinations = _draw(combinations, _MOST[split], random.Random(f"{name} {split}"))
    return [
        _fill(
            f"{name}-{split}-{i}", name, template, family, split, dict(zip(slots, c, strict=True))
        )
        for i, c in enumerate(combinations)
    ]


def _make_up(
    name: str,
    template: Mapping[str, Any],
    family: Mapping[str, Any],
    pools: Mapping[str, list[dict[str, str]]],
    free: Mapping[str, list[dict[str, str]]],
) -> list[Task]:
    """Makes tasks with one or two random words as the value of each slot that takes any text.

    A template's few training values can be learned by heart; these can only be copied.
    """
    slots = _slots(template)
    if not any(slot.rstrip("2") in free for slot in slots):
        return []
    words = sorted({w for pool in free.values() for value in pool for w in value["name"].split()})
    rng = random.Random(f"{name} made-up")
    tasks = []
    for i in range(_MADE_UP):
        values = {
            slot: {"name": " ".join(rng.sample(words, rng.choice((1, 2))))}
            if slot.rstrip("2") in free
            else rng.choice(pools[slot])
            for slot in slots
        }
        tasks.append(_fill(f"{name}-made-up-{i}", name, template, family, "made-up", values))
    return tasks


def _slots(template: Mapping[str, Any]) -> list[str]:
    """The names of the slots of a template's goal, in order."""
    return [slot for _, slot, _, _ in string.Formatter().parse(template["goal"]) if slot]


def _draw(
    combinations: list[tuple[dict[str, str], ...]], most: int, rng: random.Random
) -> list[tuple[dict[str, str], ...]]:
    """Draws at most so many combinations, in which every value comes about equally often."""
    if len(combinations) <= most:
        return combinations
    rest, drawn = rng.sample(combinations, len(combinations)), []
    uses: collections.Counter[str] = collections.Counter()
    for _ in range(most):
        drawn.append(min(rest, key=lambda c: sum(uses[value["name"]] for value in c)))
        rest.remove(drawn[-1])
        uses.update(value["name"] for value in drawn[-1])
    return drawn


def _side(
    slot: str, pool: list[dict[str, str]], template: Mapping[str, Any], split: str
) -> list[dict[str, str]]:
    """The values of a slot that belong to a split."""
    if slot == "site" and "item" in template["goal"]:
        return pool  # the items are kept apart; each shop is needed with both
    every, fold = template.get("every", _EVERY), template["fold"]
    return [v for i, v in enumerate(pool) if (i % every == fold) == (split == "test")]


def _fill(
    task_id: str,
    name: str,
    template: Mapping[str, Any],
    family: Mapping[str, Any],
    split: str,
    slots: Mapping[str, Mapping[str, str]],
) -> Task:
    values = {slot: value["name"] for slot, value in slots.items()}
    for key in ("query", "keys"):
        if "query" in template:
            values[key] = template.get(key, template["query"]).format_map(values)
    extras = {f"{s}_{k}": v for s, value in slots.items() for k, v in value.items() if k != "name"}
    plain = values | extras
    quoted = {k: re.escape(v) for k, v in plain.items()}
    quoted |= {f"{k}_words": _all_words(v) for k, v in values.items()}
    return Task(
        id=task_id,
        goal=template["goal"].format_map(values),
        checks=tuple(
            Check(c["shell"].format_map(plain), c["matches"].format_map(quoted))
            for c in family["checks"]
        ),
        setup=tuple(command.format_map(plain) for command in family.get("setup", ())),
        template=name,
        family=template["family"],
        suite=family["suite"],
        split=split,
        values=tuple(values.items()),
    )


def _all_words(text: str) -> str:
    """A regular expression for a value, up to a comma, that has every word of the text."""
    words = (re.escape(quote_plus(word)) for word in text.split())
    return "(?i:" + "".join(rf"(?=[^,\n]*\b{word}\b)" for word in words) + ")"


def _named(entry: str | Mapping[str, str]) -> dict[str, str]:
    return {"name": entry} if isinstance(entry, str) else dict(entry)


def _task(where: str, entry: Any) -> Task:
    """A task from a user's file."""
    fields = [field.name for field in dataclasses.fields(Task)]
    _require_fields(where, entry, ("id", "goal", "checks"), fields)
    checks = []
    for check in _list_of(where, "checks", entry["checks"], dict):
        _require_fields(f"{where}, a check", check, ("shell", "matches"))
        try:
            re.compile(check["matches"])
        except (re.error, TypeError) as error:
            raise ConfigError(f"{where}: {check['matches']!r} is no pattern: {error}") from error
        checks.append(Check(str(check["shell"]), check["matches"]))
    if not checks:
        raise ConfigError(f"{where}: a task needs at least one check.")
    values = entry.get("values", {})
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: 'values' must be a mapping of names to texts.")
    return Task(
        checks=tuple(checks),
        setup=tuple(_list_of(where, "setup", entry.get("setup", []), str)),
        values=tuple((str(k), str(v)) for k, v in values.items()),
        **{k: str(v) for k, v in entry.items() if k not in ("checks", "setup", "values")},
    )


def _list_of(where: str, name: str, value: Any, kind: type) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(v, kind) for v in value):
        raise ConfigError(f"{where}: {name!r} must be a list.")
    return value


def _require_fields(
    where: str, entry: Any, required: Iterable[str], known: Iterable[str] = ()
) -> None:
    """Checks that an entry is a mapping with the required fields and only known ones."""
    required = tuple(required)
    known = {*required, *known}
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected a mapping with {', '.join(required)}.")
    for field in entry:
        if field not in known:
            raise ConfigError(
                f"{where}: unknown field {field!r}; known are {', '.join(sorted(known))}."
            )
    for field in required:
        if field not in entry:
            raise ConfigError(f"{where}: the field {field!r} is missing.")
