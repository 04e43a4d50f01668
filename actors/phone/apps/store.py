"""The app store: search for an app and install it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.phone import ui
from actors.phone.apps.app import App

if TYPE_CHECKING:
    from actors.phone.phone import Phone

# Titles and packages of what can be installed.
CATALOG = {
    "Twitter": "com.twitter.android",
    "Instagram": "com.instagram.android",
    "Facebook": "com.facebook.katana",
    "Spotify": "com.spotify.music",
    "Pandora": "com.pandora.android",
    "Netflix": "com.netflix.mediaclient",
    "Uber": "com.ubercab",
    "Lyft": "me.lyft.android",
    "Amazon": "com.amazon.mShop.android.shopping",
    "Reddit": "com.reddit.frontpage",
    "Yelp": "com.yelp.android",
    "CNN": "com.cnn.mobile.android.phone",
    "ESPN": "com.espn.score_center",
    "Starbucks": "com.starbucks.mobilecard",
    "Wikipedia": "org.wikipedia",
    "Yahoo": "com.yahoo.mobile.client.android.yahoo",
}


class Store(App):
    package = "com.android.vending"
    activity = ".AssetBrowserActivity"
    title = "Play Store"
    color = ui.PALETTE[3]

    def __init__(self, phone: Phone):
        super().__init__(phone)
        self._query = ""

    def views(self) -> list[ui.View]:
        views = [
            ui.app_bar(self.title, self.color),
            self.field("search", (14, 84, 346, 134), self._query, "Search apps"),
        ]
        if not self._query:
            return [*views, *self._banners()]
        found = self._found()
        if found is None:
            nothing = f"No results for {self._query}"
            return [*views, ui.View("label", (20, 160, 340, 200), nothing, ui.INK, id="empty")]
        return [*views, *self._result(found)]

    def back(self) -> bool:
        left, self._query = self._query, ""
        return bool(left)

    def submit(self, field: str, text: str) -> None:
        self._query = text

    def _found(self) -> str | None:
        words = self._query.lower().split()
        return next((title for title in CATALOG if title.lower() in words), None)

    def _banners(self) -> list[ui.View]:
        colors = (ui.PALETTE[1], ui.PALETTE[5], ui.PALETTE[9])
        return [
            ui.View("box", (14, 152 + i * 150, 346, 282 + i * 150), color=color)
            for i, color in enumerate(colors)
        ]

    def _result(self, title: str) -> list[ui.View]:
        package = CATALOG[title]
        installed = package in self.phone.packages
        card = ui.View(
            "card", (10, 150, 350, 240), title, ui.shade(title), id="result", detail="Free app"
        )

        def install_or_open() -> None:
            if installed:
                self.phone.start(package)
            else:
                self.phone.install(package)

        button = ui.View(
            "button",
            (30, 260, 330, 326),
            "Open" if installed else "Install",
            ui.PALETTE[6] if installed else ui.PALETTE[4],
            id="open" if installed else "install",
            on_tap=install_or_open,
        )
        return [card, button]
