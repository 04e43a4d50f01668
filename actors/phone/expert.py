"""The scripted expert: solves every built-in task from what the screen shows.

It sees the view tree and the task, has no memory, and so goes on from wherever it finds the phone.
Its demonstrations are what a policy starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.phone.apps.app import App
from actors.phone.apps.browser import Browser
from actors.phone.apps.clock import Clock
from actors.phone.apps.contacts import Contacts
from actors.phone.apps.settings import SWITCHES, Settings
from actors.phone.apps.store import Store
from actors.phone.nodes import Node
from common.actions import Action, ActionType
from common.tasks import Task

HOME = Action(ActionType.PRESS_HOME)
BACK = Action(ActionType.PRESS_BACK)
ENTER = Action(ActionType.PRESS_ENTER)
SCROLL_DOWN = Action(ActionType.DUAL_POINT, (0.8, 0.5), (0.2, 0.5))
SCROLL_UP = Action(ActionType.DUAL_POINT, (0.2, 0.5), (0.8, 0.5))


def act(nodes: Sequence[Node], task: Task) -> Action:
    """Returns the next action towards the task.

    Args:
      nodes: The view tree; the first node is the whole screen.
      task: One of the built-in tasks.

    Raises:
      KeyError: The task's family is not one of the built-in ones.
    """
    app, solve = _FAMILIES[task.family]
    screen = Screen(nodes)
    if app is not None and screen.package != app.package:
        return screen.launch(app.title)
    return solve(screen, task)


class Screen:
    """The view tree, and actions on what is in it."""

    def __init__(self, nodes: Sequence[Node]):
        self._nodes = nodes
        _, _, self._width, self._height = nodes[0].bounds
        self.package = nodes[0].package  # of the app in front

    def find(self, name: str, text: str | None = None) -> Node | None:
        """The first node with this resource id (without its package), and text if it is given."""
        return next(
            (
                node
                for node in self._nodes
                if node.resource_id.endswith(f":id/{name}")
                and (text is None or node.text.lower() == text.lower())
            ),
            None,
        )

    def shows(self, name: str, text: str | None = None) -> bool:
        return self.find(name, text) is not None

    def tap(self, name: str, text: str | None = None) -> Action:
        """A tap on the middle of a node that is there; BACK if the keyboard covers it."""
        node = self.find(name, text)
        assert node is not None, f"There is no {name} {text or ''} on the screen."
        x0, y0, x1, y1 = node.bounds
        keyboard = self.find("keyboard")
        if keyboard is not None and (y0 + y1) / 2 >= keyboard.bounds[1]:
            return BACK
        at = (round((y0 + y1) / 2 / self._height, 2), round((x0 + x1) / 2 / self._width, 2))
        return Action(ActionType.DUAL_POINT, at, at)

    def launch(self, title: str) -> Action:
        """The way to an app: its icon, or the home screen where it is."""
        return self.tap("icon", title) if self.shows("icon", title) else HOME

    def enter(self, field: str, text: str) -> Action:
        """The next action that ends with this text being submitted in a field."""
        node = self.find(field)
        if node is None or not node.focused:
            return self.tap(field)
        if not node.text:
            return Action(ActionType.TYPE, text=text)
        # A tap on a field that holds something else empties it.
        return ENTER if node.text.lower() == text.lower() else self.tap(field)


def _open(screen: Screen, task: Task) -> Action:
    return screen.launch(task.value("app"))


def _switch(screen: Screen, task: Task) -> Action:
    if screen.shows("switch", task.value("setting")):
        return screen.tap("switch", task.value("setting"))
    return SCROLL_DOWN if screen.shows("switch", SWITCHES[0].title) else SCROLL_UP


def _alarm(screen: Screen, task: Task) -> Action:
    if screen.shows("save"):
        return _choose(screen, task.value("hour"), "save")
    return screen.tap("add") if screen.shows("add") else screen.tap("alarms")


def _timer(screen: Screen, task: Task) -> Action:
    if screen.shows("start"):
        return _choose(screen, task.value("minutes"), "start")
    return screen.tap("timers") if screen.shows("timers") else screen.tap("cancel")


def _choose(screen: Screen, chip: str, button: str) -> Action:
    node = screen.find("chip", chip)
    return screen.tap(button) if node is not None and node.checked else screen.tap("chip", chip)


def _call(screen: Screen, task: Task) -> Action:
    if screen.shows("person", task.value("person")):
        return screen.tap("person", task.value("person"))
    right = screen.shows("name", task.value("person")) and screen.shows("call")
    return screen.tap("call") if right else BACK


def _install(screen: Screen, task: Task) -> Action:
    if screen.shows("result", task.value("store_app")) and screen.shows("install"):
        return screen.tap("install")
    return screen.enter("search", task.value("store_app"))


def _new_tab(screen: Screen, task: Task) -> Action:
    del task
    return screen.tap("new_tab")


def _incognito(screen: Screen, task: Task) -> Action:
    del task
    return screen.tap("new_incognito_tab")


def _search(screen: Screen, task: Task) -> Action:
    return screen.enter("url_bar", task.value("query"))


def _site(screen: Screen, task: Task) -> Action:
    return screen.enter("url_bar", task.value("site"))


def _site_search(screen: Screen, task: Task) -> Action:
    bar = screen.find("url_bar")
    if bar is None or bar.focused or not screen.shows("site", task.value("site")):
        return _site(screen, task)
    return screen.enter("site_search", task.value("item"))


def _first_entry(screen: Screen, task: Task) -> Action:
    here = screen.shows("site", task.value("site"))
    if here and screen.shows("entry_1", task.value("item")):
        return screen.tap("entry_1")
    return _site_search(screen, task)


def _add_to_cart(screen: Screen, task: Task) -> Action:
    here = screen.shows("site", task.value("site"))
    if here and screen.shows("product", task.value("item")):
        return screen.tap("add_to_cart")
    return _first_entry(screen, task)


def _show_cart(screen: Screen, task: Task) -> Action:
    if screen.shows("site", task.value("site")):
        return screen.tap("cart")
    return _site(screen, task)


# Which app each family of tasks needs (None: the task says), and what to do there.
_FAMILIES: dict[str, tuple[type[App] | None, Callable[[Screen, Task], Action]]] = {
    "open": (None, _open),
    "turn_on": (Settings, _switch),
    "turn_off": (Settings, _switch),
    "alarm": (Clock, _alarm),
    "timer": (Clock, _timer),
    "call": (Contacts, _call),
    "install": (Store, _install),
    "tab": (Browser, _new_tab),
    "incognito": (Browser, _incognito),
    "search": (Browser, _search),
    "site": (Browser, _site),
    "site_search": (Browser, _site_search),
    "first_entry": (Browser, _first_entry),
    "add_to_cart": (Browser, _add_to_cart),
    "show_cart": (Browser, _show_cart),
}
