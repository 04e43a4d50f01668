"""The simulated phone: its apps and settings, what is on the screen, and what input does.

No I/O and no clock: whoever serves the phone calls its methods from one thread.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from PIL import Image

from actors.phone import ui
from actors.phone.apps import store
from actors.phone.apps.app import App, Rows
from actors.phone.apps.browser import Browser
from actors.phone.apps.clock import Clock
from actors.phone.apps.contacts import Contacts
from actors.phone.apps.launcher import Launcher, PlainApp
from actors.phone.apps.settings import Settings, initial_settings
from actors.phone.apps.store import Store
from actors.phone.nodes import Node

MAX_TYPED = 60  # characters that a field takes
_TOUCH_SLOP = 24  # dp; a shorter swipe is a tap

_WALLPAPERS: tuple[ui.Color, ...] = (
    (244, 240, 232),
    (228, 240, 232),
    (240, 230, 238),
    (230, 236, 246),
)
_PLAIN_APPS = (
    ("com.android.camera2", "com.android.camera.CameraLauncher", "Camera", ui.PALETTE[11]),
    ("com.google.android.gm", ".ConversationListActivityGmail", "Gmail", ui.PALETTE[0]),
    ("com.google.android.apps.maps", "com.google.android.maps.MapsActivity", "Maps", ui.PALETTE[4]),
    ("com.google.android.music", ".MusicActivity", "Music", ui.PALETTE[1]),
    ("com.google.android.apps.photos", ".home.HomeActivity", "Photos", ui.PALETTE[9]),
    ("com.google.android.calendar", ".AllInOneActivity", "Calendar", ui.PALETTE[6]),
    ("com.google.android.calculator", ".Calculator", "Calculator", ui.PALETTE[10]),
)
_CLASSES = {
    "field": "android.widget.EditText",
    "button": "android.widget.Button",
    "icon": "android.widget.TextView",
    "label": "android.widget.TextView",
    "bar": "android.widget.TextView",
}


class Phone:
    """A phone with twelve apps.

    Attributes:
      settings: What `settings get` reads, by namespace; call `refresh` after a change.
      revision: Counts the changes of what the screen shows.
      focus: Id of the text field that has the keyboard, or None.
      typed: What was typed into it.
      dialog: What the system's dialog over everything says, or "" if there is none.
    """

    def __init__(self, seed: int = 0, width: int = ui.WIDTH, height: int = ui.HEIGHT):
        self.size = (width, height)
        self.revision = 0
        self._views: list[ui.View] = []
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Makes everything as on a fresh phone; the seed draws the layout and the settings."""
        rng = random.Random(seed)
        self.settings = initial_settings(rng)
        self.focus: str | None = None
        self.typed = ""
        self.dialog = ""
        self._stuck = False
        self._installed: set[str] = set()
        # Titles of apps that were installed by a package the store does not know are the package.
        self._titles = {package: title for title, package in store.CATALOG.items()}
        apps: list[App] = [kind(self) for kind in (Settings, Clock, Browser, Contacts, Store)]
        apps += [PlainApp(self, *app) for app in _PLAIN_APPS]
        self._apps = {app.package: app for app in apps}
        rng.shuffle(apps)
        self._launcher = Launcher(self, apps, rng.choice(_WALLPAPERS))
        self._apps[Launcher.package] = self._launcher
        self._app: App = self._launcher
        self.refresh()

    def refresh(self) -> None:
        """Lays the screen out anew; `revision` moves if it differs from before."""
        views = self._app.views()
        if self.focus is not None and not any(view.focused for view in views):
            self.focus, self.typed = None, ""  # the field is gone, and the keyboard with it
        if self.focus is not None:
            views = [*views, *ui.keyboard()]
        if self.dialog:
            views = [*views, *ui.dialog(self.dialog, self._wait, self._close)]
        background = ui.View("box", (0, 0, ui.WIDTH, ui.HEIGHT), color=self._app.background)
        views = [background, *views]
        if views != self._views:
            self.revision += 1
        self._views = views

    def render(self) -> Image.Image:
        return ui.render(self._views, *self.size)

    def nodes(self) -> list[Node]:
        """The views in drawing order; the first is the whole screen."""
        return [self._node(view) for view in self._views]

    # Input.

    def tap(self, x: float, y: float) -> None:
        x, y = x / self.size[0] * ui.WIDTH, y / self.size[1] * ui.HEIGHT
        under = (view for view in reversed(self._views) if view.on_tap and view.contains(x, y))
        hit = next(under, None)
        if hit is None or hit.kind != "keyboard":
            self.focus, self.typed = None, ""  # a tap beside the keyboard closes it
        if hit is not None and hit.on_tap is not None:
            hit.on_tap()
        self.refresh()

    def swipe(self, x1: float, y1: float, x2: float, y2: float, duration_ms: int = 300) -> None:
        """Scrolls if the finger moves up or down; how long it takes makes no difference."""
        del duration_ms
        move_x = (x2 - x1) / self.size[0] * ui.WIDTH
        move_y = (y2 - y1) / self.size[1] * ui.HEIGHT
        if max(abs(move_x), abs(move_y)) < _TOUCH_SLOP:
            self.tap(x1, y1)
        elif abs(move_y) > abs(move_x):
            self._app.scroll(down=move_y < 0)
            self.refresh()

    def type_text(self, text: str, anything: bool = False) -> bool:
        """Appends printable ASCII to the focused field, or anything; False if there is no field."""
        if self.focus is None:
            return False
        self.typed = (self.typed + (text if anything else printable(text)))[:MAX_TYPED]
        self.refresh()
        return True

    def key(self, name: str) -> None:
        """Presses a key by its name without KEYCODE_; unknown keys do nothing."""
        press = {"HOME": self._home, "BACK": self._back, "ENTER": self._enter, "DEL": self._delete}
        if name in press:
            press[name]()
            self.refresh()

    def focus_on(self, field: str) -> None:
        """Gives a field the keyboard, empty: see App.field."""
        self.focus, self.typed = field, ""

    def hang(self, stuck: bool = False) -> None:
        """Lets the app in front stop answering; a stuck one's dialog never goes away."""
        self.dialog = f"Application Not Responding: {self._app.package}"
        self._stuck = stuck
        self.refresh()

    # Apps.

    @property
    def foreground(self) -> str:
        """The component in front, such as com.android.settings/.Settings."""
        return f"{self._app.package}/{self._app.activity}"

    @property
    def packages(self) -> list[str]:
        return sorted(self._apps)

    @property
    def third_party(self) -> list[str]:
        return sorted(self._installed)

    def show(self, app: App) -> None:
        """Brings an app to the front."""
        self._app = app
        self.focus, self.typed = None, ""

    def start(self, target: str, url: str | None = None) -> bool:
        """Starts a component or package, with a page to view; False if it is not installed."""
        app = self._apps.get(target.partition("/")[0])
        if app is None:
            return False
        self.show(app)
        if url is not None and isinstance(app, Browser):
            app.submit("url_bar", printable(url))
        self.refresh()
        return True

    def force_stop(self, package: str) -> None:
        """Ends an app; if it was in front the home screen is shown."""
        if self._app.package == package:
            self._home()
            self.refresh()

    def install(self, package: str) -> None:
        if package not in self._apps:
            title = self._titles.get(package, package)
            self._apps[package] = PlainApp(self, package, ".MainActivity", title, ui.shade(title))
            self._installed.add(package)
            self.refresh()

    def uninstall(self, package: str) -> bool:
        """Removes an app that was installed; False if it is none of those."""
        if package not in self._installed:
            return False
        self.force_stop(package)
        self._installed.remove(package)
        del self._apps[package]
        self.refresh()
        return True

    def content(self, uri: str) -> Rows | None:
        """The rows of a content provider; None if no app provides it."""
        providers = [app.content() for app in self._apps.values()]
        read = next((p[uri.rstrip("/")] for p in providers if uri.rstrip("/") in p), None)
        return None if read is None else read()

    def content_delete(self, uri: str, where: Mapping[str, str]) -> int:
        """Deletes the rows that have these values; returns how many could be."""
        uri = uri.rstrip("/")
        owner = next((app for app in self._apps.values() if uri in app.content()), None)
        if owner is None:
            return 0
        rows = owner.content()[uri]()
        for row in rows:
            if all(row.get(name) == value for name, value in where.items()):
                owner.delete(uri, row)
        self.refresh()
        return len(rows) - len(owner.content()[uri]())

    def _node(self, view: ui.View) -> Node:
        sx, sy = self.size[0] / ui.WIDTH, self.size[1] / ui.HEIGHT
        x0, y0, x1, y1 = view.bounds
        name = f"{self._app.package}:id/{view.id}" if view.id else ""
        if view.id.startswith("android:"):
            name = view.id  # the system's own
        return Node(
            text=view.text,
            content_desc=view.description,
            resource_id=name,
            class_name=_CLASSES.get(view.kind, "android.view.View"),
            package=self._app.package,
            bounds=(round(x0 * sx), round(y0 * sy), round(x1 * sx), round(y1 * sy)),
            clickable=view.on_tap is not None,
            focused=view.focused,
            checkable=view.checked is not None,
            checked=bool(view.checked),
            scrollable=view.scrollable,
        )

    def _wait(self) -> None:
        if not self._stuck:
            self.dialog = ""

    def _close(self) -> None:
        self._wait()
        self._home()

    def _home(self) -> None:
        self.show(self._launcher)

    def _back(self) -> None:
        if self.focus is not None:
            self.focus, self.typed = None, ""  # the first BACK only closes the keyboard
        elif not self._app.back():
            self._home()

    def _enter(self) -> None:
        field, text = self.focus, self.typed.strip()
        if field is not None and text:
            self.focus, self.typed = None, ""
            self._app.submit(field, text)

    def _delete(self) -> None:
        self.typed = self.typed[:-1]


def printable(text: str) -> str:
    """The text without anything but printable ASCII."""
    return "".join(c for c in text if " " <= c <= "~")
