"""Chrome: tabs with a history, a search engine, and the shops.

A page is its address: what a tab shows is made from the last URL of its history and the cart.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

from actors.phone import ui
from actors.phone.apps import shops
from actors.phone.apps.app import App, Rows

if TYPE_CHECKING:
    from actors.phone.phone import Phone

TABS = "content://com.android.chrome/tabs"
CART = "content://com.android.chrome/cart"
NEW_TAB = "chrome://newtab/"
_RESULTS = 5
_MOST_TABS = 20
_TILES = 4
_MOST_PAGES = 50  # of one tab's history
_LOGO = tuple(ui.PALETTE[i] for i in (6, 0, 2, 3))
_TOP = 92  # where a page begins, in dp


@dataclasses.dataclass
class Tab:
    id: int
    incognito: bool
    history: list[str]

    @property
    def url(self) -> str:
        return self.history[-1]


class Browser(App):
    package = "com.android.chrome"
    activity = "com.google.android.apps.chrome.Main"
    title = "Chrome"
    color = ui.PALETTE[2]

    def __init__(self, phone: Phone):
        super().__init__(phone)
        self._tabs = [Tab(1, False, [NEW_TAB])]
        self._last_id = 1
        self._cart: list[shops.CartItem] = []

    @property
    def tab(self) -> Tab:
        """The tab in front: the last one opened."""
        return self._tabs[-1]

    def views(self) -> list[ui.View]:
        return [*self._toolbar(), *self._page()]

    def back(self) -> bool:
        if len(self.tab.history) > 1:
            self.tab.history.pop()
        elif len(self._tabs) > 1:
            self._tabs.pop()
        else:
            return False
        return True

    def submit(self, field: str, text: str) -> None:
        if field == "url_bar":
            self.go(address(text))
        else:
            self.go(f"https://www.{self._site()}/search?q={quote_plus(text.lower())}")

    def go(self, url: str) -> None:
        """Loads a page in the tab in front."""
        if url != self.tab.url:
            self.tab.history = [*self.tab.history, url][-_MOST_PAGES:]

    def content(self):
        return {TABS: self._tab_rows, CART: self._cart_rows}

    def delete(self, uri: str, row: dict[str, str]) -> None:
        if uri == CART:
            self._cart.remove(shops.CartItem(row["site"], row["item"]))
        elif len(self._tabs) > 1:
            self._tabs = [tab for tab in self._tabs if str(tab.id) != row["id"]]

    def _tab_rows(self) -> Rows:
        # The title comes last: it is the only column that can hold a comma.
        return [
            {
                "id": str(tab.id),
                "active": str(int(tab is self.tab)),
                "incognito": str(int(tab.incognito)),
                "url": tab.url,
                "title": title(tab.url),
            }
            for tab in self._tabs
        ]

    def _cart_rows(self) -> Rows:
        return [item._asdict() for item in self._cart]

    def _site(self) -> str:
        return urlsplit(self.tab.url).netloc.removeprefix("www.")

    def _open_tab(self, incognito: bool) -> None:
        self._last_id += 1
        self._tabs = [*self._tabs, Tab(self._last_id, incognito, [NEW_TAB])][-_MOST_TABS:]

    def _toolbar(self) -> list[ui.View]:
        def button(x: int, text: str, color: ui.Color, name: str, incognito: bool) -> ui.View:
            return ui.View(
                "button",
                (x, 32, x + 52, 84),
                text,
                color,
                description=name.replace("_", " ").capitalize(),
                id=name,
                on_tap=lambda: self._open_tab(incognito),
            )

        shown = "" if self.tab.url == NEW_TAB else self.tab.url.removeprefix("https://www.")
        bar = (66, 66, 74) if self.tab.incognito else (222, 224, 230)
        return [
            ui.View("box", (0, ui.STATUS_BAR, ui.WIDTH, _TOP), color=bar),
            self.field("url_bar", (8, 32, 238, 84), shown, "Search or type URL"),
            button(246, "+", ui.PALETTE[3], "new_tab", False),
            button(302, "##", ui.PALETTE[8], "new_incognito_tab", True),
        ]

    def _page(self) -> list[ui.View]:
        url = urlsplit(self.tab.url)
        site = self._site()
        query = searched(self.tab.url)
        if self.tab.url == NEW_TAB:
            return self._new_tab()
        if site in shops.SITES:
            return self._shop(site, url.path, query)
        if site == "google.com" and url.path == "/search":
            return self._results(query)
        return [
            ui.View("box", (0, _TOP, ui.WIDTH, 300), color=ui.shade(url.path)),
            ui.View("label", (20, 320, 340, 360), title(self.tab.url), ui.INK, id="title"),
        ]

    def _new_tab(self) -> list[ui.View]:
        if self.tab.incognito:
            return [
                ui.View("box", (0, _TOP, ui.WIDTH, ui.HEIGHT), color=(40, 40, 48)),
                ui.View("label", (90, 300, 340, 340), "You've gone Incognito", ui.WHITE),
            ]
        logo = [
            ui.View("box", (68 + i * 58, 200, 118 + i * 58, 250), color=color)
            for i, color in enumerate(_LOGO)
        ]
        # Tiles for the tabs behind this one: a new tab is seen to have opened.
        behind = [tab for tab in self._tabs[:-1] if not tab.incognito][-_TILES:]
        tiles = [
            ui.View("box", (68 + i * 58, 290, 118 + i * 58, 340), color=ui.shade(tab.url))
            for i, tab in enumerate(behind)
        ]
        return [*logo, *tiles]

    def _results(self, query: str) -> list[ui.View]:
        logo = [
            ui.View("box", (14 + i * 20, 102, 30 + i * 20, 118), color=color)
            for i, color in enumerate(_LOGO)
        ]
        return [*logo, *(self._result(query, n) for n in range(1, _RESULTS + 1))]

    def _result(self, query: str, number: int) -> ui.View:
        y = 126 + (number - 1) * 100
        url = f"https://www.result{number}.com/about?q={quote_plus(query)}"
        return ui.View(
            "card",
            (10, y, 350, y + 92),
            query.title(),
            _LOGO[number % len(_LOGO)],
            id=f"result_{number}",
            detail=f"www.result{number}.com",
            on_tap=lambda: self.go(url),
        )

    def _shop(self, site: str, path: str, query: str) -> list[ui.View]:
        def add(item: str) -> None:
            if shops.CartItem(site, item) not in self._cart:
                self._cart = [*self._cart, shops.CartItem(site, item)][-shops.MOST_ITEMS :]

        search = self.field("site_search", shops.SEARCH_BOX, query, f"Search {site}")
        cart = [item.item for item in self._cart if item.site == site]
        return [
            *shops.header(site, self.go),
            search,
            *shops.page(site, path, query, cart, self.go, add),
        ]


def address(text: str) -> str:
    """The URL that a text in the address bar leads to: a site's, or a search for the text."""
    bare = text.strip().lower().removeprefix("https://").removeprefix("http://")
    bare = bare.removeprefix("www.").rstrip("/")
    if bare.partition("/")[0] in shops.SITES:
        return "https://www." + quote(bare, safe="/?=&+%.-") + ("" if "/" in bare else "/")
    return f"https://www.google.com/search?q={quote_plus(text.strip().lower())}"


def searched(url: str) -> str:
    """The q of a URL, or "". Escapes may hide unprintable characters: they are left out."""
    query = parse_qs(urlsplit(url).query).get("q", [""])[0]
    return "".join(c for c in query if " " <= c <= "~")


def title(url: str) -> str:
    """What a tab's title says about its page."""
    if url == NEW_TAB:
        return "New tab"
    query = searched(url)
    site = urlsplit(url).netloc.removeprefix("www.")
    return f"{query} - {site}" if query else site
