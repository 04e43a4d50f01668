"""The expert solves every task, and every task can be told from the others."""

import random

import pytest

from actors.phone import expert
from actors.phone.nodes import nodes_from_xml, nodes_to_xml
from common.actions import parse, render
from common.tasks import Task, builtin_tasks
from tests.actors.phone.simulation import Simulation

MOST = 9  # actions that a task takes from the home screen
ONE_OF_EACH = list({task.template: task for task in builtin_tasks()}.values())


def solve(task: Task, simulation: Simulation, most: int = MOST, from_xml: bool = False) -> int:
    """Lets the expert act until the task is done; returns the number of actions."""
    for count in range(most):
        if simulation.is_done(task):
            return count
        nodes = simulation.phone.nodes()
        if from_xml:
            nodes = nodes_from_xml(nodes_to_xml(nodes))
        action = expert.act(nodes, task)
        assert simulation.do(action), f"{task.goal}: {action} changed nothing"
    assert simulation.is_done(task), f"{task.goal}: not done after {most} actions"
    return most


@pytest.mark.parametrize(
    ("seed", "tasks"), [(0, builtin_tasks()), (1, ONE_OF_EACH), (2, ONE_OF_EACH), (3, ONE_OF_EACH)]
)
def test_every_task_is_open_at_the_start_and_solved_by_the_expert(seed, tasks):
    for task in tasks:
        simulation = Simulation(seed)
        simulation.prepare(task)
        assert not simulation.is_done(task), task.goal
        solve(task, simulation)


def test_the_expert_finds_its_way_back_from_anywhere():
    for seed, task in enumerate(builtin_tasks()[::2]):
        rng = random.Random(seed)
        simulation = Simulation(seed)
        simulation.prepare(task)
        for _ in range(rng.randrange(40)):
            simulation.disturb(rng)
        solve(task, simulation, most=MOST + 4)  # HOME, BACK from a page, or the keyboard


@pytest.mark.parametrize("task", ONE_OF_EACH, ids=lambda task: task.template)
def test_a_task_is_solved_over_adb_on_a_large_screen(task):
    simulation = Simulation(3, width=1080, height=2280)
    simulation.prepare(task)
    solve(task, simulation, from_xml=True)


def test_doing_one_task_is_not_doing_another():
    tasks: dict[str, list[Task]] = {}
    for task in builtin_tasks():
        if task.split != "made-up":  # a made-up value may be a word of a real one
            tasks.setdefault(task.family, []).append(task)
    for family in tasks.values():
        rng = random.Random(family[0].family)
        for task in rng.sample(family, min(4, len(family))):
            simulation = Simulation(4)
            simulation.prepare(task)
            solve(task, simulation)
            for other in family:
                if not same(task, other) and not other.setup:
                    assert not simulation.is_done(other), f"{task.goal} also does {other.goal}"


def same(task: Task, other: Task) -> bool:
    """Whether who does one task has done the other: they differ in their words alone."""
    if "keys" in dict(task.values):
        return set(other.value("keys").split()) <= set(task.value("query").split())
    return task.checks == other.checks


def test_the_expert_writes_actions_that_the_grammar_reads():
    for task in ONE_OF_EACH:
        simulation = Simulation(0)
        simulation.prepare(task)
        while not simulation.is_done(task):
            action = expert.act(simulation.phone.nodes(), task)
            assert parse(render(action)) == action
            assert all(round(c, 2) == c for c in (*action.touch_yx, *action.lift_yx))
            simulation.do(action)
