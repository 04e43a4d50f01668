"""A simulated phone and its shell in this process, with no adb between."""

from __future__ import annotations

import asyncio
import random

from actors.phone import expert
from actors.phone.android import Android
from actors.phone.phone import Phone
from actors.phone.process import Input, Output, Streams
from actors.phone.shell import Shell
from common.actions import Action, ActionType
from common.tasks import Task


def run_line(android: Android, line: str, stdin: bytes = b"") -> tuple[bytes, str, int]:
    """Runs a command line in a shell of its own; returns its output, its errors, its status."""
    streams = Streams(Input(stdin), Output(), Output())
    status = asyncio.run(asyncio.wait_for(Shell(android).run(line, streams), 10))
    return streams.out.take(), streams.err.take().decode(), status


class Simulation:
    def __init__(self, seed: int = 0, width: int = 360, height: int = 640):
        self.phone = Phone(seed, width, height)
        self._android = Android(self.phone)

    def shell(self, command: str) -> str:
        output, errors, status = run_line(self._android, command)
        assert status == 0, f"{command}: {errors}"
        return output.decode()

    def prepare(self, task: Task) -> None:
        for command in task.setup:
            self.shell(command)

    def is_done(self, task: Task) -> bool:
        return all(check.holds(self.shell(check.shell)) for check in task.checks)

    def do(self, action: Action) -> bool:
        """Does an action; True if the screen changed."""
        before = self.phone.revision
        width, height = self.phone.size
        if action.type is ActionType.DUAL_POINT:
            (y1, x1), (y2, x2) = action.touch_yx, action.lift_yx
            self.phone.swipe(x1 * width, y1 * height, x2 * width, y2 * height)
        elif action.type is ActionType.TYPE:
            self.phone.type_text(action.text)
        else:
            self.phone.key(action.type.removeprefix("PRESS_"))
        return self.phone.revision != before

    def disturb(self, rng: random.Random) -> None:
        """Does something that nobody meant to."""
        width, height = self.phone.size
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        draw = rng.random()
        if draw < 0.6:
            self.phone.tap(x, y)
        elif draw < 0.7:
            self.phone.swipe(x, y, rng.uniform(0, width), rng.uniform(0, height))
        elif draw < 0.8:
            self.phone.type_text("".join(chr(rng.randrange(256)) for _ in range(rng.randrange(9))))
        else:
            self.phone.key(rng.choice(("BACK", "HOME", "ENTER", "DEL", "CAMERA")))

    def tap(self, name: str, text: str | None = None) -> None:
        """Taps on the view with this resource id, and text if it is given."""
        assert self.do(expert.Screen(self.phone.nodes()).tap(name, text)), f"{name} did nothing"

    def enter(self, field: str, text: str) -> None:
        self.tap(field)
        self.phone.type_text(text)
        self.phone.key("ENTER")

    def open(self, app: str) -> None:
        self.phone.key("HOME")
        self.tap("icon", app)
