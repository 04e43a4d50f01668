"""The Contacts app: people, and a call to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.phone import ui
from actors.phone.apps.app import App, Rows

if TYPE_CHECKING:
    from actors.phone.phone import Phone

PEOPLE = ("Alice", "Bob", "Carol", "David", "Emma", "Frank", "Grace")
CALLS = "content://call_log/calls"
CONTACTS = "content://com.android.contacts/contacts"
_COLORS = tuple(ui.PALETTE[i] for i in (0, 3, 6, 2, 9, 10, 5))
_MOST_CALLS = 20


class Contacts(App):
    package = "com.google.android.contacts"
    activity = "com.android.contacts.activities.PeopleActivity"
    title = "Contacts"
    color = ui.PALETTE[5]

    def __init__(self, phone: Phone):
        super().__init__(phone)
        self._person: str | None = None  # whose page is shown
        self._calling = False
        self._calls: list[str] = []

    def views(self) -> list[ui.View]:
        if self._person is None:
            rows = [self._row(i, person) for i, person in enumerate(PEOPLE)]
            return [ui.app_bar(self.title, self.color), *rows]
        color = _COLORS[PEOPLE.index(self._person)]
        views = [
            ui.app_bar(self.title, self.color),
            ui.View("box", (120, 110, 240, 230), color=color),
            ui.View("label", (120, 246, 300, 276), self._person, ui.INK, id="name"),
        ]
        if self._calling:
            end = (40, 520, 320, 590)
            return [
                *views,
                ui.View("label", (120, 300, 300, 330), "Calling...", ui.INK, id="calling"),
                ui.View("button", end, "End call", ui.PALETTE[0], id="end", on_tap=self._hang_up),
            ]
        call = (40, 330, 320, 400)
        return [
            *views,
            ui.View("button", call, "Call", ui.PALETTE[3], id="call", on_tap=self._call),
        ]

    def back(self) -> bool:
        if self._calling:
            self._calling = False
            return True
        left, self._person = self._person, None
        return left is not None

    def content(self):
        return {CALLS: self._call_rows, CONTACTS: self._contact_rows}

    def delete(self, uri: str, row: dict[str, str]) -> None:
        if uri == CALLS:
            self._calls.remove(row["name"])

    def _call_rows(self) -> Rows:
        return [
            {"_id": str(i + 1), "name": name, "number": _number(name), "type": "2"}
            for i, name in enumerate(self._calls)
        ]

    def _contact_rows(self) -> Rows:
        return [{"_id": str(i + 1), "display_name": name} for i, name in enumerate(PEOPLE)]

    def _row(self, index: int, person: str) -> ui.View:
        y = ui.APP_BAR + index * 76

        def open_page() -> None:
            self._person = person

        return ui.View(
            "row",
            (0, y, ui.WIDTH, y + 76),
            person,
            _COLORS[index],
            id="person",
            detail=_number(person),
            on_tap=open_page,
        )

    def _call(self) -> None:
        assert self._person is not None
        self._calling = True
        self._calls = [*self._calls, self._person][-_MOST_CALLS:]

    def _hang_up(self) -> None:
        self._calling = False


def _number(person: str) -> str:
    return f"555-010{PEOPLE.index(person)}"
