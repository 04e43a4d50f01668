"""A run is readable as plain lines and as a table on a terminal."""

import dataclasses
import io

import pytest
import rich.console

from launch.display import Display, View, line, table
from launch.system import left

LEARNER = {
    "phase": "reinforce",
    "updates": 1448,
    "demonstrations": 1200,
    "target_demonstrations": 1200,
    "episodes": 1000,
    "target_episodes": 2000,
    "episodes_per_s": 8.0,
    "success": 0.5,
    "measured": 64,
    "version": 165,
    "lag_versions": 1.5,
    "elapsed_s": 400.0,
}
PROCESSES = {
    "adb": ("running", ""),
    "phones": ("running", ""),
    "learner": ("running", ""),
    "actor-0": ("exploring", "59/97 ok: open the clock app"),
    "actor-1": ("recovering", "60/98 ok, 1 truncated: emulator-1: screencap took over 10 s"),
}
VIEW = View("reinforce", 405, 125, LEARNER, PROCESSES)


def test_a_line_holds_what_matters():
    assert line(VIEW) == (
        "6:45 | reinforce | at most 2:05 left | step 1448 | episodes 1000/2000, 8.0/s | "
        "success 0.50 (last 64) | version 165, lag 1.5 | "
        "actor-0 exploring 59/97 ok, actor-1 recovering 60/98 ok, 1 truncated"
    )


def test_demonstrations_are_counted_while_they_matter():
    view = dataclasses.replace(VIEW, phase="warm start", learner=LEARNER | {"measured": 0})
    assert "| demonstrations 1200/1200, 8.0/s | success not measured yet |" in line(view)
    assert "episodes" not in line(view)


def test_a_process_that_does_not_run_is_named():
    processes = {"adb": ("running", ""), "learner": ("restarting", "")}
    assert line(View("start", 5, None, {}, processes)) == "0:05 | start | learner restarting"


def test_a_line_is_short_however_many_actors_there_are():
    processes = {f"actor-{i}": ("exploring", "1000/2000 ok: a goal") for i in range(32)}
    shown = line(dataclasses.replace(VIEW, processes=processes))
    assert len(shown) == 200 and shown.endswith("...")


def test_a_table_has_a_row_for_each_process():
    console = rich.console.Console(width=120, record=True, file=io.StringIO())
    console.print(table(VIEW))
    rows = console.export_text().splitlines()
    assert len(rows) <= 2 + len(PROCESSES)
    assert rows[-2].split() == [
        "actor-0",
        "exploring",
        "59/97",
        "ok:",
        "open",
        "the",
        "clock",
        "app",
    ]
    assert rows[-1].endswith("emulator-1: screencap took over 10 s")


def test_plain_lines_come_every_five_seconds_and_with_each_phase(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("launch.display.time.monotonic", lambda: now[0])
    with Display(rich.console.Console(file=io.StringIO())) as display:
        for phase, at in (("a", 0), ("a", 4.9), ("b", 4.9), ("b", 9.8), ("b", 9.9), ("b", 10.0)):
            now[0] = 100.0 + at
            display.show(View(phase, at, None, {}, {}))
    assert capsys.readouterr().out.splitlines() == ["0:00 | a", "0:05 | b", "0:10 | b"]


@pytest.mark.parametrize(
    ("changes", "expected_s"),
    [
        ({}, 125.0),  # 1000 episodes at 8 a second
        ({"episodes_per_s": 1.0}, 320.0),  # 720 s - 400 s come first
        ({"episodes_per_s": 0.0}, 320.0),
        ({"phase": "warm start"}, 320.0),
    ],
)
def test_the_time_left_is_that_of_the_clock_or_of_the_episodes(changes, expected_s):
    assert left(720.0, LEARNER | changes) == expected_s
