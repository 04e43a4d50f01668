"""One view as accessibility sees it, and all of them as `uiautomator dump` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML
_BOUNDS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")


class Node(NamedTuple):
    """A view on the screen; bounds are pixels, x1 and y1 outside."""

    text: str
    content_desc: str
    resource_id: str
    class_name: str
    package: str
    bounds: tuple[int, int, int, int]
    clickable: bool
    focused: bool
    checkable: bool
    checked: bool
    scrollable: bool


def nodes_to_xml(nodes: Iterable[Node]) -> str:
    """Returns the nodes, in drawing order, as children of one hierarchy."""
    body = "".join(_element(index, node) for index, node in enumerate(nodes))
    head = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>"
    return f'{head}<hierarchy rotation="0">{body}</hierarchy>'


def _element(index: int, node: Node) -> str:
    x0, y0, x1, y1 = node.bounds
    attributes = {
        "index": index,
        "text": node.text,
        "resource-id": node.resource_id,
        "class": node.class_name,
        "package": node.package,
        "content-desc": node.content_desc,
        "checkable": node.checkable,
        "checked": node.checked,
        "clickable": node.clickable,
        "enabled": True,
        "focusable": node.clickable,
        "focused": node.focused,
        "scrollable": node.scrollable,
        "long-clickable": False,
        "password": False,
        "selected": False,
        "bounds": f"[{x0},{y0}][{x1},{y1}]",
    }
    return f"<node {' '.join(f'{key}={_value(attributes[key])}' for key in attributes)} />"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return '"true"' if value else '"false"'
    return quoteattr(_INVALID.sub("", str(value)))


def nodes_from_xml(xml: str) -> list[Node]:
    """Reads a dump, parents before their children.

    Raises:
      ValueError: The text is not a dump of views.
    """
    try:
        hierarchy = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise ValueError(f"The view tree is not XML: {error}") from error
    return [_node(element) for element in hierarchy.iter("node")]


def _node(element: ElementTree.Element) -> Node:
    def flag(name: str) -> bool:
        return element.get(name) == "true"

    bounds = _BOUNDS.fullmatch(element.get("bounds", ""))
    if bounds is None:
        raise ValueError(f"A view has the bounds {element.get('bounds')!r}.")
    x0, y0, x1, y1 = map(int, bounds.groups())
    return Node(
        text=element.get("text", ""),
        content_desc=element.get("content-desc", ""),
        resource_id=element.get("resource-id", ""),
        class_name=element.get("class", ""),
        package=element.get("package", ""),
        bounds=(x0, y0, x1, y1),
        clickable=flag("clickable"),
        focused=flag("focused"),
        checkable=flag("checkable"),
        checked=flag("checked"),
        scrollable=flag("scrollable"),
    )
