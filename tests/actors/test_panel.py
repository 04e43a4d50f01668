"""Panels: what is in them, their hash, and overlap with training."""

import dataclasses

import pytest

from actors import panel
from common.errors import ConfigError
from common.tasks import Check, Task, load_tasks

TASKS = [Task(f"t{i}", f"Goal {i}", (Check("x", str(i)),), suite="general") for i in range(5)]
HORIZON = {"general": 7}


def test_an_even_share_of_all_tasks_with_layouts_that_are_never_trained_on():
    made = panel.draw(TASKS, 12, 3, HORIZON)
    counts = [sum(task is entry.task for entry in made.entries) for task in TASKS]
    assert sorted(counts) == [2, 2, 2, 3, 3]
    assert all(entry.seed >= panel.LAYOUT_SEEDS for entry in made.entries)
    assert len({entry.seed for entry in made.entries}) == 12
    first = panel.draw(TASKS, 3, 3, HORIZON, shuffle=False)
    assert [entry.task for entry in first.entries] == TASKS[:3]


def test_the_hash_names_all_that_an_episode_depends_on():
    def hash_of(tasks=TASKS, count=5, seed=0, horizon=HORIZON):
        return panel.draw(tasks, count, seed, horizon).hash

    assert hash_of() == hash_of()
    changed = [dataclasses.replace(TASKS[0], setup=("x",)), *TASKS[1:]]
    others = [
        hash_of(seed=1), hash_of(count=4), hash_of(changed), hash_of(horizon={"general": 8}),
        hash_of([dataclasses.replace(TASKS[0], checks=()), *TASKS[1:]]),
    ]  # fmt: skip
    assert len({hash_of(), *others}) == 6


def test_overlap_and_repetitions_are_found():
    twin = dataclasses.replace(TASKS[1], id="twin", goal="goal  1")
    assert panel.overlap(TASKS, [twin]) == ("goal 1",)
    assert panel.repeated([*TASKS, twin]) == ("goal 1",)
    for suite in ("general", "webshop"):
        assert panel.overlap(load_tasks(f"{suite}-test"), load_tasks(f"{suite}-train")) == ()


def test_a_text_file_s_lines_are_tasks_without_checks(tmp_path):
    path = tmp_path / "webshop_test.txt"
    path.write_text("Go to ebay.com\n\nGo to costco.com\nGo to ebay.com\n")
    tasks = panel.load(str(path))
    assert [task.goal for task in tasks] == ["Go to ebay.com", "Go to costco.com", "Go to ebay.com"]
    assert {task.suite for task in tasks} == {"webshop"}
    assert len({task.id for task in tasks}) == 3
    assert panel.repeated(tasks) == ("go to ebay.com",)
    path.write_text("\n")
    with pytest.raises(ConfigError, match="holds no instruction"):
        panel.load(str(path))
    with pytest.raises(ConfigError, match="can't be read"):
        panel.load(str(tmp_path / "none.txt"))
