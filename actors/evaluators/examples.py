"""The examples that a model sees before it judges: screens of the simulated phone, with answers."""

from __future__ import annotations

import functools

import numpy as np

from actors.evaluators.question import Example
from actors.evaluators.verdict import Status
from actors.phone import expert
from actors.phone.phone import Phone
from common import actions
from common.actions import Action, ActionType
from common.tasks import Task


@functools.cache
def examples() -> tuple[Example, ...]:
    """Draws two tasks that are done and two that are not; the same ones each time."""
    opened = _Walk(3, Task("", "Open the Clock app", (), family="open", values=(("app", "Clock"),)))
    opened.follow(until=1)
    switch = _Walk(
        4, Task("", "Turn on Bluetooth", (), family="turn_on", values=(("setting", "Bluetooth"),))
    )
    switch.phone.settings["global"]["bluetooth_on"] = "0"
    switch.follow(until=1)
    typed = _Walk(
        5,
        Task(
            "",
            "What's the weather in Lima?",
            (),
            family="search",
            values=(("query", "weather in Lima"),),
        ),
    )
    typed.follow(until=3)
    found = _Walk(
        6,
        Task(
            "",
            "Go to ebay.com, search for 'usb-c cable'",
            (),
            family="site_search",
            values=(("site", "ebay.com"), ("item", "usb-c cable")),
        ),
    )
    found.follow(until=7)
    return (
        opened.example(
            "The Clock app is in front.", "The Clock app, with its tabs.", Status.SUCCESS
        ),
        switch.example(
            "Bluetooth's switch is on.",
            "The list of settings; Bluetooth's switch is off.",
            Status.FAILURE,
        ),
        typed.example(
            "Results that hold a forecast for Lima.",
            "The query is typed, but nothing was searched for yet.",
            Status.FAILURE,
        ),
        found.example(
            "ebay.com's results for a usb-c cable.",
            "ebay.com with a list of results for usb-c cable.",
            Status.SUCCESS,
        ),
    )


class _Walk:
    """The expert on a phone of its own, up to the step that is to be shown."""

    def __init__(self, seed: int, task: Task):
        self.phone = Phone(seed)
        self._task = task
        self._decisions: list[str] = []

    def follow(self, until: int) -> None:
        for _ in range(until):
            self._do(expert.act(self.phone.nodes(), self._task))

    def _do(self, action: Action) -> None:
        width, height = self.phone.size
        if action.type is ActionType.DUAL_POINT:
            (y1, x1), (y2, x2) = action.touch_yx, action.lift_yx
            self.phone.swipe(x1 * width, y1 * height, x2 * width, y2 * height)
        elif action.type is ActionType.TYPE:
            self.phone.type_text(action.text)
        else:
            self.phone.key(action.type.removeprefix("PRESS_"))
        self._decisions.append(actions.decision(actions.render(action)))

    def example(self, expected: str, seen: str, status: Status) -> Example:
        image = np.asarray(self.phone.render().convert("RGB"))
        decisions = tuple(self._decisions[-2:])
        return Example(self._task.goal, decisions, image, expected, seen, status)
