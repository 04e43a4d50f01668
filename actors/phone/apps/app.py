"""What every app of the simulated phone is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.phone import ui

if TYPE_CHECKING:
    from actors.phone.phone import Phone

Rows = list[dict[str, str]]


class App:
    """One app: its pages' state, the views that show it, and the rows that adb can read.

    The phone owns the app and the one text field that may have the focus. An app that is left and
    opened again goes on where it was, as on a real phone.
    """

    package: str
    activity: str
    title: str
    color: ui.Color = ui.ACCENT
    background: ui.Color = ui.PAPER

    def __init__(self, phone: Phone):
        self.phone = phone

    def views(self) -> list[ui.View]:
        """The screen below the status bar; later views lie over earlier ones."""
        raise NotImplementedError

    def back(self) -> bool:
        """Goes back one page; False if there is none and the app is to be left."""
        return False

    def scroll(self, down: bool) -> None:
        """Shows what lies further down, or further up."""

    def submit(self, field: str, text: str) -> None:
        """Takes the text that ENTER was pressed on in one of the app's fields."""

    def content(self) -> dict[str, Callable[[], Rows]]:
        """Readers of the app's content providers, by URI."""
        return {}

    def delete(self, uri: str, row: dict[str, str]) -> None:
        """Deletes one row that `content` listed."""

    def field(self, name: str, bounds: ui.Box, text: str, hint: str) -> ui.View:
        """A text field that shows `text`, or what was typed since it got the focus.

        A tap selects the whole text as in a browser's address bar, so what is typed then replaces
        it; like Chrome we show the field empty at once. Leaving it without ENTER brings it back.
        """
        focused = self.phone.focus == name
        return ui.View(
            "field",
            bounds,
            self.phone.typed if focused else text,
            (255, 250, 225) if focused else (236, 237, 241),
            description=hint,
            id=name,
            focused=focused,
            on_tap=lambda: self.phone.focus_on(name),
        )
