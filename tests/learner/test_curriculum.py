"""The learner's choice of tasks."""

import json

import numpy as np
import pytest

from common.errors import ConfigError
from common.tasks import TaskSampler, load_tasks
from learner.curriculum import Curriculum, CurriculumConfig

TASKS = load_tasks("general-train")


def curriculum(kind, **options):
    return Curriculum(TASKS, CurriculumConfig(kind, **options))


def test_actors_choose_unless_the_learner_is_to():
    assert curriculum("local").weights() is None
    np.testing.assert_allclose(curriculum("uniform").weights(), 1 / len(TASKS), rtol=1e-6)


def test_what_surprises_is_played_more_and_the_rest_keeps_its_floor():
    made = curriculum("surprise", floor=0.2, rate=1.0)
    for task in TASKS:
        made.see_outcome(task.id, True)
        made.see_value(task.id, 1.0)  # as foreseen
    made.see_value(TASKS[5].id, 0.25)  # 0.75 of a surprise
    made.see_outcome(TASKS[7].id, False)
    made.see_value(TASKS[7].id, 0.25)  # 0.25 of one
    weights = made.weights()
    assert weights.sum() == pytest.approx(1.0, rel=1e-4)
    even = 0.2 / len(TASKS)
    assert weights[0] == pytest.approx(even, rel=0.01)
    assert weights[5] == pytest.approx(even + 0.8 * 0.75, rel=0.01)
    assert weights[7] == pytest.approx(even + 0.8 * 0.25, rel=0.01)


def test_an_outcome_counts_once_and_the_newest_ones_most():
    made = curriculum("surprise", rate=0.5)
    for task in TASKS[1:]:
        made.see_outcome(task.id, False)  # p = .5: a half is a surprise, whatever V
    made.see_outcome(TASKS[0].id, False)
    made.see_outcome(TASKS[0].id, True)  # p = 1, .5, .75
    for value in (0.5, 0.25, 1.0):
        made.see_value(TASKS[0].id, value)  # the newest: .75 * 0 + .25 * 1
    weights = made.weights()
    even = 0.2 / len(TASKS)
    assert (weights[0] - even) / (weights[1] - even) == pytest.approx(0.25 / 0.5, rel=1e-4)


def test_a_task_of_which_nothing_is_known_counts_as_surprising():
    made = curriculum("surprise", rate=1.0)
    for task in TASKS[1:]:
        made.see_outcome(task.id, False)
        made.see_value(task.id, 0.1)
    weights = made.weights()
    assert weights[0] == max(weights)
    made.see_outcome("a task of another file", True)
    made.see_value("a task of another file", 0.0)
    np.testing.assert_array_equal(made.weights(), weights)


def test_a_restored_one_and_a_seed_give_the_same_order_of_tasks():
    first = curriculum("surprise")
    rng = np.random.default_rng(0)
    for task in TASKS:
        first.see_outcome(task.id, bool(rng.random() < 0.5))
        first.see_value(task.id, rng.random())
    second = curriculum("surprise")
    second.restore(json.loads(json.dumps(first.state())))  # as a checkpoint keeps it
    orders = []
    for made in (first, second):
        sampler = TaskSampler(TASKS, 4)
        orders.append([sampler.next(made.weights()).id for _ in range(100)])
    assert orders[0] == orders[1]


@pytest.mark.parametrize("options", [{"kind": "hard"}, {"floor": 0.0}, {"rate": 2.0}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ConfigError, match=r"curriculum\."):
        CurriculumConfig(**options)
