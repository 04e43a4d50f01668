"""Tasks: the two splits, files of a user's own, and sampling."""

import collections

import numpy as np
import pytest

from common.errors import ConfigError
from common.tasks import SUITES, Check, Task, TaskSampler, builtin_tasks, load_tasks

GOOD = """
tasks:
  - id: dark
    goal: Turn on dark theme
    setup: [settings put secure ui_night_mode 1]
    checks: [{shell: settings get secure ui_night_mode, matches: "^2$"}]
"""


def slots(task: Task) -> dict[str, str]:
    return {name: value for name, value in task.values if name not in ("query", "keys")}


def by_template(split: str) -> dict[str, list[Task]]:
    tasks = collections.defaultdict(list)
    for task in builtin_tasks():
        if task.split == split:
            tasks[task.template].append(task)
    return tasks


def test_there_are_enough_tasks_of_every_kind():
    tasks = builtin_tasks()
    assert len({task.template for task in tasks}) >= 36
    assert len({task.family for task in tasks}) >= 10
    assert 400 <= len(load_tasks("all-train")) <= 1200
    assert 100 <= len(load_tasks("all-test")) <= 400
    assert len({task.id for task in tasks}) == len(tasks)
    assert by_template("train").keys() == by_template("test").keys()


def test_the_specs_divide_the_tasks():
    parts = [f"{suite}-{part}" for suite in SUITES for part in ("practice", "test")]
    tasks = [task for spec in parts for task in load_tasks(spec)]
    assert sorted(t.id for t in tasks) == sorted(t.id for t in builtin_tasks())
    assert set(load_tasks("webshop-train")) < set(load_tasks("webshop-practice"))
    assert {t.suite for t in load_tasks("webshop-test")} == {"webshop"}
    assert {t.split for t in load_tasks("all-train")} == {"train"}


def test_no_value_of_a_template_is_in_both_splits():
    train, test = by_template("train"), by_template("test")
    for template, tasks in test.items():
        seen = {value for task in train[template] for value in shared_slots(task).values()}
        for task in tasks:
            assert not seen & set(shared_slots(task).values()), task.goal


def shared_slots(task: Task) -> dict[str, str]:
    """The slots that are kept apart: of site and item together only the item is."""
    values = slots(task)
    if "item" in values:
        del values["site"]
    return values


def test_made_up_values_are_no_test_values():
    test = {task.goal.lower() for task in load_tasks("all-test")}
    made_up = [task for task in load_tasks("all-practice") if task.split == "made-up"]
    assert len(made_up) > 100
    assert not test & {task.goal.lower() for task in made_up}


def test_no_instruction_is_in_both_splits():
    train, test = load_tasks("all-train"), load_tasks("all-test")
    assert not {task.goal for task in train} & {task.goal for task in test}


def test_every_word_of_a_test_value_was_seen_in_training():
    seen = {
        word for task in load_tasks("all-train") for v in slots(task).values() for word in v.split()
    }
    for task in load_tasks("all-test"):
        for value in slots(task).values():
            assert set(value.split()) <= seen, task.goal


def test_every_value_of_a_closed_set_is_trained_with_some_wording():
    closed = ("app", "setting", "hour", "minutes", "person", "store_app", "site")
    for slot in closed:
        values = {
            split: {v for t in load_tasks(f"all-{split}") for k, v in t.values if k == slot}
            for split in ("train", "test")
        }
        assert values["test"] <= values["train"], slot


def test_words_are_found_in_any_case_and_order():
    task = next(task for task in builtin_tasks() if task.template == "flights")
    start, end = (task.value(name).lower() for name in ("city", "city2"))
    row = "Row: 0 id=1, active={}, incognito=0, url=https://www.google.com/search?q={}, title=x"

    def done(query: str, active: str = "1") -> bool:
        return all(check.holds(row.format(active, query)) for check in task.checks)

    assert done(f"flights+from+{start}+to+{end}")
    assert done(f"{end}+{start}+Flights+today")
    assert not done(f"flights+from+{start}")
    assert not done(f"flights+{start}{end}")
    assert not done(f"flights+from+{start}+to+{end}", active="0")
    assert not done(f"flights, title={start} {end}")


def test_a_file_of_tasks_is_read(tmp_path):
    path = tmp_path / "tasks.yaml"
    path.write_text(GOOD)
    (task,) = load_tasks(str(path))
    assert task.goal == "Turn on dark theme"
    assert task.setup == ("settings put secure ui_night_mode 1",)
    assert task.checks == (Check("settings get secure ui_night_mode", "^2$"),)
    assert task.checks[0].holds("2\n")
    assert not task.checks[0].holds("12\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("goal:", "gaol:"), "task 1: unknown field 'gaol'"),
        (("shell:", "command:"), "unknown field 'command'"),
        (("    goal: Turn on dark theme\n", ""), "'goal' is missing"),
        (('"^2$"', '"(2"'), "is no pattern"),
        (("tasks:", "tests:"), "unknown field 'tests'"),
        (("[settings put secure ui_night_mode 1]", "reboot"), "'setup' must be a list"),
        (("  - id", "  id"), "YAML"),
        (('[{shell: settings get secure ui_night_mode, matches: "^2$"}]', "[]"), "one check"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(tmp_path, change, message):
    path = tmp_path / "tasks.yaml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(ConfigError, match=message) as error:
        load_tasks(str(path))
    assert str(path) in str(error.value)


def test_an_id_that_comes_twice_is_refused(tmp_path):
    path = tmp_path / "tasks.yaml"
    path.write_text(GOOD + GOOD.replace("\ntasks:\n", ""))
    with pytest.raises(ConfigError, match="'dark' comes twice"):
        load_tasks(str(path))


def test_an_unknown_name_is_refused():
    with pytest.raises(ConfigError, match=r"give one of general-train.*or a YAML file"):
        load_tasks("general-trian")


def test_a_seed_gives_the_same_draw():
    tasks = load_tasks("all-train")

    def draw(seed: int) -> list[str]:
        sampler = TaskSampler(tasks, seed)
        return [sampler.next().id for _ in range(50)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def shares(sampler, count=12_000):
    drawn = collections.Counter(sampler.next().template for _ in range(count))
    return {template: number / count for template, number in drawn.items()}


def test_every_template_gets_its_share():
    tasks = load_tasks("all-train")
    found = shares(TaskSampler(tasks, 0))
    sizes = collections.Counter(task.template for task in tasks)
    for template, size in sizes.items():
        expected = 0.5 * size / len(tasks) + 0.5 / len(sizes)
        assert found[template] == pytest.approx(expected, abs=0.007)


def test_what_fails_is_drawn_more_and_nothing_is_dropped():
    tasks = load_tasks("all-train")
    sampler = TaskSampler(tasks, 0)
    for task in tasks * 20:
        sampler.report(task, success=task.template != "open_app")
    found = shares(sampler)
    sizes = collections.Counter(task.template for task in tasks)
    weights = dict.fromkeys(sizes, sampler.FLOOR) | {"open_app": 1.0}
    for template, size in sizes.items():
        expected = 0.5 * size / len(tasks) + 0.5 * weights[template] / sum(weights.values())
        assert found[template] == pytest.approx(expected, abs=0.015), template
    assert len({sampler.next().id for _ in range(20_000)}) == len(tasks)


def test_there_is_nothing_to_sample_from_no_tasks():
    with pytest.raises(ConfigError):
        TaskSampler((), 0)


def test_the_learners_weights_decide_where_they_fit():
    tasks = load_tasks("all-train")
    weights = np.zeros(len(tasks), np.float32)
    weights[[3, 8]] = 0.25, 0.75
    sampler, same = TaskSampler(tasks, 0), TaskSampler(tasks, 0)
    drawn = [sampler.next(weights).id for _ in range(2_000)]
    assert drawn == [same.next(weights).id for _ in range(2_000)]  # a seed gives the order
    shares = collections.Counter(drawn)
    assert set(shares) == {tasks[3].id, tasks[8].id}
    assert shares[tasks[8].id] / 2_000 == pytest.approx(0.75, abs=0.04)


def test_weights_for_other_tasks_leave_the_actor_to_itself():
    tasks = load_tasks("all-train")
    sampler, alone = TaskSampler(tasks, 0), TaskSampler(tasks, 0)
    assert [sampler.next(np.ones(3)) for _ in range(20)] == [alone.next() for _ in range(20)]
