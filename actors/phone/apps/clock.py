"""The Clock app: alarms and timers."""

from __future__ import annotations

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
            for i, hour in enumerate(self._alarms)
        ]
        add = self._button("+", (140, 540, 220, 620), ui.ACCENT, "add", self._open_editor)
        return [*self._tabs(), *rows, add]

    def _edit(self) -> list[ui.View]:
        def pick(hour: int) -> None:
            self._hour = hour

        chips = [
            self._chip(i, 92, hour_name(hour), hour == self._hour, lambda hour=hour: pick(hour))
            for i, hour in enumerate(HOURS)
        ]
        return [
            *chips,
            self._button("Cancel", (20, 548, 160, 610), (150, 150, 156), "cancel", self._close),
            self._button("Save", (200, 548, 340, 610), ui.PALETTE[4], "save", self._save),
        ]

    def _timer(self) -> list[ui.View]:
        def pick(minutes: int) -> None:
            self._minutes = minutes

        chips = [
            self._chip(i, 146, str(value), value == self._minutes, lambda value=value: pick(value))
            for i, value in enumerate(MINUTES)
        ]
        running = ui.View(
            "label", (20, 570, 180, 600), f"{len(self._timers)} running", ui.INK, id="running"
        )
        start = self._button("Start", (200, 560, 340, 622), ui.PALETTE[3], "start", self._start)
        return [*self._tabs(), *chips, running, start]

    def _tabs(self) -> list[ui.View]:
        def go(page: str) -> None:
            self._page = page

        return [
            ui.View(
                "button",
                (i * 180, ui.APP_BAR, i * 180 + 180, ui.APP_BAR + 56),
                title,
                ui.PALETTE[5] if self._page == page else (226, 228, 232),
                id=page,
                on_tap=lambda page=page: go(page),
            )
            for i, (page, title) in enumerate((("alarms", "Alarm"), ("timers", "Timer")))
        ]

    def _chip(self, index: int, top: int, text: str, checked: bool, on_tap) -> ui.View:
        x, y = 16 + index % 3 * 112, top + index // 3 * 102
        box = (x, y, x + 104, y + 92)
        return ui.View("button", box, text, _CHIP, id="chip", checked=checked, on_tap=on_tap)

    def _button(self, text: str, box: ui.Box, color: ui.Color, name: str, on_tap) -> ui.View:
        return ui.View("button", box, text, color, id=name, on_tap=on_tap)

    def _open_editor(self) -> None:
        self._page, self._hour = "edit", None

    def _close(self) -> None:
        self._page = "alarms"

    def _save(self) -> None:
        if self._hour is None:
            return  # as long as no hour is chosen there is nothing to save
        if self._hour not in self._alarms:
            self._alarms = sorted([*self._alarms, self._hour][-_MOST:])
        self._close()

    def _start(self) -> None:
        if self._minutes is not None:
            self._timers = [*self._timers, self._minutes][-_MOST:]
            self._minutes = None
