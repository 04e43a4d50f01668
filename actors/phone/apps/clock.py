"""The Clock app: alarms and timers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.phone import ui
from actors.phone.apps.app import App, Rows

if TYPE_CHECKING:
    from actors.phone.phone import Phone

HOURS = (5, 6, 7, 8, 9, 10, 13, 15, 17, 18, 20, 22)
MINUTES = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 45, 50)
ALARMS = "content://com.android.deskclock/alarms"
TIMERS = "content://com.android.deskclock/timers"
_MOST = 4  # alarms and timers that fit on the screen; the oldest gives way
_CHIP: ui.Color = (214, 216, 226)


def hour_name(hour: int) -> str:
    """The hour of a day as people write it: 6am, 12pm."""
    return f"{(hour - 1) % 12 + 1}{'am' if hour < 12 else 'pm'}"


class Clock(App):
    package = "com.google.android.deskclock"
    activity = "com.android.deskclock.DeskClock"
    title = "Clock"
    color = ui.PALETTE[7]

    def __init__(self, phone: Phone):
        super().__init__(phone)
        self._page = "alarms"  # or "edit", "timers"
        self._hour: int | None = None
        self._minutes: int | None = None
        self._alarms: list[int] = []
        self._timers: list[int] = []

    def views(self) -> list[ui.View]:
        page = {"alarms": self._list, "edit": self._edit, "timers": self._timer}[self._page]
        return [ui.app_bar(self.title, self.color), *page()]

    def back(self) -> bool:
        left, self._page = self._page, "alarms"
        return left != "alarms"

    def content(self):
        return {ALARMS: self._alarm_rows, TIMERS: self._timer_rows}

    def delete(self, uri: str, row: dict[str, str]) -> None:
        if uri == ALARMS:
            self._alarms.remove(int(row["hour"]))
        else:
            self._timers.remove(int(row["length"]) // 60_000)

    def _alarm_rows(self) -> Rows:
        return [
            {"_id": str(i + 1), "hour": str(hour), "minutes": "0", "enabled": "1"}
            for i, hour in enumerate(self._alarms)
        ]

    def _timer_rows(self) -> Rows:
        return [
            {"_id": str(i + 1), "length": str(minutes * 60_000), "state": "running"}
            for i, minutes in enumerate(self._timers)
        ]

    def _list(self) -> list[ui.View]:
        rows = [
            ui.View(
                "row",
                (0, 142 + i * 72, ui.WIDTH, 214 + i * 72),
                f"Alarm {hour_name(hour)}",
                ui.PALETTE[1],
                id="alarm",
            )
            for i, hour in enumerate(sorted(self._alarms))
        ]
        add = _button("+", (140, 540, 220, 620), ui.ACCENT, "add", self._open_editor)
        return [*self._tabs(), *rows, add]

    def _edit(self) -> list[ui.View]:
        return [
            *self._chips(92, [(hour_name(hour), hour) for hour in HOURS], self._hour, "_hour"),
            _button("Cancel", (20, 548, 160, 610), (150, 150, 156), "cancel", self._close),
            _button("Save", (200, 548, 340, 610), ui.PALETTE[4], "save", self._save),
        ]

    def _timer(self) -> list[ui.View]:
        running = f"{len(self._timers)} running"
        return [
            *self._tabs(),
            *self._chips(146, [(str(m), m) for m in MINUTES], self._minutes, "_minutes"),
            ui.View("label", (20, 570, 180, 600), running, ui.INK, id="running"),
            _button("Start", (200, 560, 340, 622), ui.PALETTE[3], "start", self._start),
        ]

    def _tabs(self) -> list[ui.View]:
        return [
            _button(
                title,
                (i * 180, ui.APP_BAR, i * 180 + 180, ui.APP_BAR + 56),
                ui.PALETTE[5] if self._page == page else (226, 228, 232),
                page,
                functools.partial(setattr, self, "_page", page),
            )
            for i, (page, title) in enumerate((("alarms", "Alarm"), ("timers", "Timer")))
        ]

    def _chips(
        self, top: int, choices: list[tuple[str, int]], chosen: int | None, attribute: str
    ) -> list[ui.View]:
        """Buttons, three to a row, of which one can be chosen."""
        chips = []
        for i, (text, value) in enumerate(choices):
            x, y = 16 + i % 3 * 112, top + i // 3 * 102
            chips.append(
                ui.View(
                    "button",
                    (x, y, x + 104, y + 92),
                    text,
                    _CHIP,
                    id="chip",
                    checked=value == chosen,
                    on_tap=functools.partial(setattr, self, attribute, value),
                )
            )
        return chips

    def _open_editor(self) -> None:
        self._page, self._hour = "edit", None

    def _close(self) -> None:
        self._page = "alarms"

    def _save(self) -> None:
        if self._hour is None:
            return  # as long as no hour is chosen there is nothing to save
        if self._hour not in self._alarms:
            self._alarms = [*self._alarms, self._hour][-_MOST:]
        self._close()

    def _start(self) -> None:
        if self._minutes is not None:
            self._timers = [*self._timers, self._minutes][-_MOST:]
            self._minutes = None


def _button(
    text: str, bounds: ui.Box, color: ui.Color, name: str, on_tap: Callable[[], None]
) -> ui.View:
    return ui.View("button", bounds, text, color, id=name, on_tap=on_tap)
