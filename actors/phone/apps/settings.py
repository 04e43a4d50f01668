"""The Settings app: a list of switches, each backed by a key that `settings get` reads."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from actors.phone import ui
from actors.phone.apps.app import App

if TYPE_CHECKING:
    from actors.phone.phone import Phone

_ROW = 68  # dp
_VISIBLE = 8
_STEP = 4  # rows that one swipe moves


class Switch(NamedTuple):
    """One row; "0" is off in every one of these keys."""

    title: str
    namespace: str
    key: str
    on: str = "1"


SWITCHES = (
    Switch("Wi-Fi", "global", "wifi_on"),
    Switch("Bluetooth", "global", "bluetooth_on"),
    Switch("Airplane mode", "global", "airplane_mode_on"),
    Switch("Mobile data", "global", "mobile_data"),
    Switch("Location", "secure", "location_mode", on="3"),
    Switch("Do not disturb", "global", "zen_mode"),
    Switch("Auto-rotate", "system", "accelerometer_rotation"),
    Switch("Night light", "secure", "night_display_activated"),
    Switch("Battery saver", "global", "low_power"),
    Switch("Touch sounds", "system", "sound_effects_enabled"),
    Switch("Screen saver", "secure", "screensaver_enabled"),
    Switch("Captions", "secure", "accessibility_captioning_enabled"),
)


def initial_settings(rng: random.Random) -> dict[str, dict[str, str]]:
    """What `settings` holds after a reset: switches at random, the rest as on a new phone."""
    values = {
        "system": {"screen_brightness": "102", "screen_off_timeout": "60000"},
        "secure": {"ui_night_mode": "1", "user_setup_complete": "1"},
        "global": {"device_name": "SimPhone", "device_provisioned": "1"},
    }
    for switch in SWITCHES:
        values[switch.namespace][switch.key] = switch.on if rng.random() < 0.5 else "0"
    return values


class Settings(App):
    package = "com.android.settings"
    activity = ".Settings"
    title = "Settings"
    color = ui.PALETTE[8]

    def __init__(self, phone: Phone):
        super().__init__(phone)
        self._first = 0  # index of the row at the top

    def views(self) -> list[ui.View]:
        shown = range(self._first, self._first + _VISIBLE)
        body = (0, ui.APP_BAR, ui.WIDTH, ui.APP_BAR + _ROW * _VISIBLE)
        return [
            ui.app_bar(self.title, self.color),
            ui.View("box", body, color=self.background, id="list", scrollable=True),
            *(self._row(place, index) for place, index in enumerate(shown)),
        ]

    def scroll(self, down: bool) -> None:
        first = self._first + (_STEP if down else -_STEP)
        self._first = min(max(first, 0), len(SWITCHES) - _VISIBLE)

    def _row(self, place: int, index: int) -> ui.View:
        switch = SWITCHES[index]
        y = ui.APP_BAR + place * _ROW
        return ui.View(
            "row",
            (0, y, ui.WIDTH, y + _ROW),
            switch.title,
            ui.PALETTE[index * 5 % len(ui.PALETTE)],  # neighbours in the list differ in hue
            id="switch",
            checked=self._is_on(switch),
            on_tap=lambda: self._flip(switch),
        )

    def _is_on(self, switch: Switch) -> bool:
        return self.phone.settings[switch.namespace].get(switch.key, "0") != "0"

    def _flip(self, switch: Switch) -> None:
        value = "0" if self._is_on(switch) else switch.on
        self.phone.settings[switch.namespace][switch.key] = value
