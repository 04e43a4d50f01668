"""Typing that arrives or fails: text goes into the focused field and is read back from it."""

from __future__ import annotations

import base64
import enum
import re
import shlex
import time
from typing import Protocol
from xml.etree import ElementTree

from common.errors import DeviceError

ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"  # github.com/senzhk/ADBKeyBoard
READ_BACK_S = 2.0  # that a field may take to show what was typed
_POLL_S = 0.1
_HIDDEN = re.compile("[•*●]+")  # how a password field shows itself


class Typed(enum.StrEnum):
    """How typing went; what is not ARRIVED is the short name of an action that failed."""

    ARRIVED = ""
    UNTYPABLE = "untypable_text"  # nothing was sent: the phone has no way to type it
    NO_FIELD = "no_field"  # nothing has the focus that takes text
    LOST = "lost_text"  # the field does not show it
    UNREAD = "unread_text"  # nobody knows: there was no view tree


class Device(Protocol):
    """What typing needs of a phone."""

    def shell(self, command: str, /) -> tuple[str, str, int]: ...
    def must(self, command: str, /) -> str: ...
    def dump(self) -> str: ...


def type_text(device: Device, text: str, read_back_s: float = READ_BACK_S) -> Typed:
    """Types at the caret of the focused field and looks whether it is there.

    Args:
      device: The phone.
      text: Printable; ASCII, unless the phone's keyboard is ADBKeyBoard.
      read_back_s: How long the field may take to show it.

    Raises:
      DeviceError: The phone failed.
    """
    if not text.isprintable() or not text:
        return Typed.UNTYPABLE
    if text.isascii():
        # `input text` turns %s into a space, so the two characters go in separate calls.
        parts = text.replace("%s", "%\0s").split("\0")
        device.must(" && ".join(f"input text {shlex.quote(part)}" for part in parts))
    elif _has_adb_keyboard(device):
        encoded = base64.b64encode(text.encode()).decode()
        device.must(f"am broadcast -a ADB_INPUT_B64 --es msg {encoded}")
    else:
        return Typed.UNTYPABLE
    return _read_back(device, text, read_back_s)


def _has_adb_keyboard(device: Device) -> bool:
    """Whether ADBKeyBoard is the keyboard; it is made so if it is only installed."""
    method = device.must("settings get secure default_input_method").strip()
    if method == ADB_KEYBOARD:
        return True
    if ADB_KEYBOARD not in device.must("ime list -a -s").split():
        return False
    device.must(f"ime enable {ADB_KEYBOARD} && ime set {ADB_KEYBOARD}")
    return True


def _read_back(device: Device, text: str, timeout_s: float) -> Typed:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            outcome = _shows(device.dump(), text)
        except DeviceError as error:
            if error.cause != "views":
                raise
            outcome = Typed.UNREAD
        if outcome in (Typed.ARRIVED, Typed.NO_FIELD) or time.monotonic() > deadline:
            return outcome
        time.sleep(_POLL_S)


def _shows(dump: str, text: str) -> Typed:
    """Looks for the text in the focused field of a view tree."""
    try:
        nodes = ElementTree.fromstring(dump).iter("node")
    except ElementTree.ParseError:
        return Typed.UNREAD
    field = next((node for node in nodes if node.get("focused") == "true"), None)
    if field is None:
        return Typed.NO_FIELD
    shown = field.get("text", "")
    if text in shown or (_HIDDEN.fullmatch(shown) and len(shown) >= len(text)):
        return Typed.ARRIVED
    return Typed.LOST
