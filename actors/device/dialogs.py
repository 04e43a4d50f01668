"""Dialogs of the system that cover the screen: an app that hangs or crashed, and the like."""

from __future__ import annotations

import re
from typing import Protocol
from xml.etree import ElementTree

from actors.device.causes import Cause
from common.errors import DeviceError

TRIES = 3
_FOCUS = re.compile(r"mCurrentFocus=Window\{\S+ \S+ (.+?)\}")
_DIALOG = re.compile(r"Application Not Responding|Application Error|ImmersiveModeConfirmation")
# What to tap, best first: wait for an app that hangs, close one that crashed, "Got it".
_ANSWERS = ("android:id/aerr_wait", "android:id/aerr_close", "android:id/ok", "android:id/button1")
_BOUNDS = re.compile(r"\[(\d+),(\d+)\]\[(\d+),(\d+)\]")


class Device(Protocol):
    """What dialogs need of a phone."""

    serial: str

    def shell(self, command: str, /) -> tuple[str, str, int]: ...
    def tap(self, point_yx: tuple[float, float], /) -> None: ...
    def key(self, name: str, /) -> None: ...
    def dump(self) -> str: ...
    def input_size(self) -> tuple[int, int]: ...


def shown(device: Device) -> str:
    """Returns which system dialog has the focus, such as an app that hangs; '' for none."""
    # Some Androids name the focus twice, some in another section only.
    found = _FOCUS.findall(device.shell("dumpsys window | grep mCurrentFocus")[0])
    return next((window for window in found if _DIALOG.search(window)), "")


def dismiss(device: Device, tries: int = TRIES) -> str:
    """Answers the system dialog that is in front, if one is.

    An app that hangs is waited for; the last try goes home instead.

    Returns:
      Which dialog it was, or '' if there was none.

    Raises:
      DeviceError: It does not go away.
    """
    first = window = shown(device)
    for left in reversed(range(tries)):
        if not window:
            return first
        point_yx = _answer(device) if left else None
        if point_yx is None:
            device.key("HOME")
        else:
            device.tap(point_yx)
        window = shown(device)
    if window:
        raise DeviceError(f"{device.serial}: {window!r} does not go away", Cause.DIALOG)
    return first


def _answer(device: Device) -> tuple[float, float] | None:
    """Returns where to tap, as fractions of the screen; None if no button is known."""
    height, width = device.input_size()
    try:
        nodes = list(ElementTree.fromstring(device.dump()).iter("node"))
    except (DeviceError, ElementTree.ParseError):
        return None  # what hangs may be what would dump it
    for answer in _ANSWERS:
        for node in nodes:
            bounds = _BOUNDS.fullmatch(node.get("bounds", ""))
            if node.get("resource-id") == answer and bounds:
                x0, y0, x1, y1 = map(int, bounds.groups())
                return (y0 + y1) / 2 / height, (x0 + x1) / 2 / width
    return None
