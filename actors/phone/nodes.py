"""One view as accessibility sees it, and the views that `uiautomator dump` wrote."""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.etree import ElementTree

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
