"""The `input` command: taps, swipes, text and keys."""

from __future__ import annotations

import asyncio
import string

from actors.phone.process import Call

_SOURCES = ("touchscreen", "keyboard", "touchpad", "mouse", "stylus", "dpad", "gamepad", "joystick")
_SWIPE_MS = 300

# Key codes of android.view.KeyEvent that someone might send.
_KEYS = {
    3: "HOME",
    4: "BACK",
    5: "CALL",
    6: "ENDCALL",
    19: "DPAD_UP",
    20: "DPAD_DOWN",
    21: "DPAD_LEFT",
    22: "DPAD_RIGHT",
    23: "DPAD_CENTER",
    24: "VOLUME_UP",
    25: "VOLUME_DOWN",
    26: "POWER",
    61: "TAB",
    66: "ENTER",
    67: "DEL",
    82: "MENU",
    84: "SEARCH",
    92: "PAGE_UP",
    93: "PAGE_DOWN",
    111: "ESCAPE",
    112: "FORWARD_DEL",
    113: "CTRL_LEFT",
    114: "CTRL_RIGHT",
    122: "MOVE_HOME",
    123: "MOVE_END",
    160: "NUMPAD_ENTER",
    187: "APP_SWITCH",
    223: "SLEEP",
    224: "WAKEUP",
    277: "CUT",
    278: "COPY",
    279: "PASTE",
}
_CHARACTERS = {
    **{7 + i: digit for i, digit in enumerate(string.digits)},
    **{29 + i: letter for i, letter in enumerate(string.ascii_lowercase)},
    **{17: "*", 18: "#", 55: ",", 56: ".", 62: " ", 68: "`", 69: "-", 70: "=", 71: "[", 72: "]"},
    **{73: "\\", 74: ";", 75: "'", 76: "/", 77: "@", 81: "+"},
}
_CHARACTER_NAMES = {
    **{char.upper(): char for char in string.digits + string.ascii_lowercase},
    **{"SPACE": " ", "COMMA": ",", "PERIOD": ".", "MINUS": "-", "SLASH": "/", "AT": "@"},
    **{"STAR": "*", "POUND": "#", "PLUS": "+", "EQUALS": "=", "SEMICOLON": ";"},
}


async def input_(call: Call) -> int | None:
    """input [SOURCE] [-d DISPLAY] tap|swipe|draganddrop|text|keyevent|keycombination ..."""
    words = list(call.args)
    if words and words[0] in _SOURCES:
        words.pop(0)
    if words[:1] == ["-d"]:
        del words[:2]
    if not words:
        return call.error("Usage: input [<source>] [-d DISPLAY_ID] <command> [<arg>...]", 255)
    name, *args = words
    function = _SUBCOMMANDS.get(name)
    if function is None:
        return call.error(f"Error: Unknown command: {name}", 255)
    before, dialog = call.android.phone.revision, call.android.phone.dialog
    try:
        status = await function(call, args)
    except IndexError:
        return _exception(call, name, f'IllegalArgumentException: Argument expected after "{name}"')
    except ValueError as error:
        return _exception(call, name, f"NumberFormatException: {error}")
    android = call.android
    if android.time_factor and android.phone.revision != before:  # an app or a page appears
        await asyncio.sleep(android.faults.heavy_tailed_s() * android.time_factor)
    if not dialog and android.faults.hit("anr"):  # what answers a dialog is no app's business
        android.phone.hang(stuck="anr_stuck" in android.faults.rates)
    return status


def _exception(call: Call, name: str, message: str) -> int:
    return call.error(f"\nException occurred while executing '{name}':\njava.lang.{message}", 255)


async def _tap(call: Call, args: list[str]):
    call.android.phone.tap(*_point(call, args[0], args[1]))


def _point(call: Call, x: str, y: str) -> tuple[float, float]:
    """Turns what `input` counts in into pixels of the screen."""
    (width, height), (input_width, input_height) = call.android.phone.size, call.android.input_size
    return _pixel(x) * width / input_width, _pixel(y) * height / input_height


async def _swipe(call: Call, args: list[str]):
    x1, y1 = _point(call, args[0], args[1])
    x2, y2 = _point(call, args[2], args[3])
    duration_ms = int(args[4]) if len(args) > 4 and args[4] else _SWIPE_MS
    if duration_ms < 0:
        duration_ms = _SWIPE_MS
    seconds = min(duration_ms, 60_000) / 1000 * call.android.time_factor
    if seconds:
        await asyncio.sleep(seconds)
    call.android.phone.swipe(x1, y1, x2, y2, duration_ms)


def _pixel(word: str) -> int:
    """Reads a coordinate as Android does, a float; it ends on a whole pixel."""
    value = float(word)
    if not -1e6 < value < 1e6:
        raise ValueError(f'For input string: "{word}"')
    return int(value)


async def _text(call: Call, args: list[str]) -> int | None:
    """Types the first word. %s is a space, and one character without a key spoils all."""
    text = args[0].replace("%s", " ")
    if not text.isascii():
        message = "NullPointerException: Attempt to get length of null array"
        return _exception(call, "text", message)
    if call.android.faults.hit("lost_text"):
        return None
    _delete_selection(call)
    first, *lines = text.split("\n")
    call.android.phone.type_text(_printable(first))
    for line in lines:
        call.android.phone.key("ENTER")
        call.android.phone.type_text(_printable(line))
    return None


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


async def _keyevent(call: Call, args: list[str]) -> int | None:
    words = [word for word in args if not word.startswith("--")]
    for word in (words[0], *words[1:]):
        key = _key(word)
        if key is None:
            return call.error(f"Error: Unknown keycode: {word}", 255)
        _press(call, key)
    return None


async def _keycombination(call: Call, args: list[str]) -> int | None:
    """Presses keys together: Ctrl with A selects all; of other combinations the last key counts."""
    words = [word for word in args if not word.startswith("-")]
    keys = []
    for word in (words[0], words[1], *words[2:]):
        key = _key(word)
        if key is None:
            return call.error(f"Error: Unknown keycode: {word}", 255)
        keys.append(key)
    if keys[0] in ("CTRL_LEFT", "CTRL_RIGHT"):
        if keys[1] == "a":
            call.android.selected_at = call.android.phone.revision
        return None
    _press(call, keys[-1])
    return None


def _key(word: str) -> str | None:
    """Returns the name of a key, or the character that it types; None for no key at all."""
    if word.isdecimal() and len(word) < 6:
        code = int(word)
        return (
            _CHARACTERS.get(code) or _KEYS.get(code) or (f"KEY_{code}" if 0 < code < 320 else None)
        )
    name = word.upper().removeprefix("KEYCODE_")
    if name in _CHARACTER_NAMES:
        return _CHARACTER_NAMES[name]
    return name if name in _KEYS.values() else None


def _delete_selection(call: Call) -> bool:
    """Deletes the text of the focused field if Ctrl+A was the last that happened to it."""
    phone = call.android.phone
    selected = call.android.selected_at == phone.revision and bool(phone.typed)
    for _ in phone.typed if selected else "":
        phone.key("DEL")
    return selected


def _press(call: Call, key: str):
    if (
        (len(key) == 1 or key in ("DEL", "FORWARD_DEL"))
        and _delete_selection(call)
        and len(key) > 1
    ):
        return
    if len(key) == 1:
        call.android.phone.type_text(key)
    else:
        call.android.phone.key("ENTER" if key == "NUMPAD_ENTER" else key)


_SUBCOMMANDS = {
    "draganddrop": _swipe,
    "keycombination": _keycombination,
    "keyevent": _keyevent,
    "swipe": _swipe,
    "tap": _tap,
    "text": _text,
}

COMMANDS = {"input": input_}
