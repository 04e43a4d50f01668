"""The view tree as `uiautomator dump` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

from actors.phone.nodes import Node

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def nodes_to_xml(nodes: Iterable[Node]) -> str:
    """Returns the nodes, in drawing order, as children of one root node of the whole screen."""
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
