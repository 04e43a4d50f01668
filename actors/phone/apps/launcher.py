"""The home screen, and apps that can only be opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from actors.phone import ui
from actors.phone.apps.app import App

if TYPE_CHECKING:
    from actors.phone.phone import Phone


class Launcher(App):
    """Icons of the apps, three to a row."""

    package = "com.android.launcher3"
    activity = ".Launcher"
    title = "Home"

    def __init__(self, phone: Phone, apps: Sequence[App], wallpaper: ui.Color):
        super().__init__(phone)
        self._apps = apps
        self.background = wallpaper

    def views(self) -> list[ui.View]:
        return [self._icon(i, app) for i, app in enumerate(self._apps)]

    def back(self) -> bool:
        return True  # there is nothing behind the home screen

    def _icon(self, index: int, app: App) -> ui.View:
        x, y = 14 + index % 3 * 116, 56 + index // 3 * 142
        return ui.View(
            "icon",
            (x, y, x + 100, y + 112),
            app.title,
            app.color,
            description=app.title,
            id="icon",
            on_tap=lambda: self.phone.show(app),
        )


class PlainApp(App):
    """An app with one page and nothing to do."""

    def __init__(self, phone: Phone, package: str, activity: str, title: str, color: ui.Color):
        super().__init__(phone)
        self.package = package
        self.activity = activity
        self.title = title
        self.color = color

    def views(self) -> list[ui.View]:
        return [
            ui.app_bar(self.title, self.color),
            ui.View("box", (60, 160, 300, 400), color=self.color),
            ui.View("label", (60, 420, 300, 460), self.title, ui.INK, detail="Nothing new"),
        ]
