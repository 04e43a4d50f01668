"""The action grammar of Auto-UI: text that the policy writes, and the action that it means.

    Action Plan: [TYPE] ; Action Decision: "action_type": "TYPE", "touch_point": "[-1.0, -1.0]",
    "lift_point": "[-1.0, -1.0]", "typed_text": "best pizza, near me"

(in one line). Points are (y, x) fractions of the screen. In typed text a quote and a backslash are
written with a backslash before them; an unescaped quote is read as itself too, because the text
runs to the last quote of the line.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

Point = tuple[float, float]

NO_POINT: Point = (-1.0, -1.0)
SWIPE_DISTANCE = 0.04  # a dual point that moves further is a swipe (AitW, action_matching.py)
TAP_MATCH_DISTANCE = 0.14  # taps this close are the same (AitW)
BOX_GROWTH = 1.4  # AitW grows an annotated box by this share of its size before the comparison


class ActionType(enum.StrEnum):
    DUAL_POINT = "DUAL_POINT"
    TYPE = "TYPE"
    PRESS_BACK = "PRESS_BACK"
    PRESS_HOME = "PRESS_HOME"
    PRESS_ENTER = "PRESS_ENTER"
    STATUS_TASK_COMPLETE = "STATUS_TASK_COMPLETE"
    STATUS_TASK_IMPOSSIBLE = "STATUS_TASK_IMPOSSIBLE"


STATUS_TYPES = frozenset({ActionType.STATUS_TASK_COMPLETE, ActionType.STATUS_TASK_IMPOSSIBLE})


@dataclasses.dataclass(frozen=True)
class Action:
    """What to do to the screen; points only for DUAL_POINT, text only for TYPE."""

    type: ActionType
    touch_yx: Point = NO_POINT
    lift_yx: Point = NO_POINT
    text: str = ""

    @property
    def is_swipe(self) -> bool:
        return self.type is ActionType.DUAL_POINT and not self.is_tap

    @property
    def is_tap(self) -> bool:
        return (
            self.type is ActionType.DUAL_POINT
            and math.dist(self.touch_yx, self.lift_yx) <= SWIPE_DISTANCE
        )

    @property
    def is_status(self) -> bool:
        """The policy ends the episode: it says that the task is complete or impossible."""
        return self.type in STATUS_TYPES


@dataclasses.dataclass(frozen=True)
class Invalid:
    """A text that means no action: a short name to count by, and a sentence for people."""

    name: str
    reason: str


class _RefusedError(Exception):
    """Leaves the scanner with what it found; `parse` turns it into a value."""


DECISION = "Action Decision:"
_KEY = re.compile(r'"([a-z_]+)"\s*:\s*')
_WORD = re.compile(r'"([A-Z_]+)"')
_POINT = re.compile(r'"?\[\s*([-+.\de]{1,24})\s*,\s*([-+.\de]{1,24})\s*\]"?')
_ESCAPED = re.compile(r'\\(["\\])')


def parse(text: str) -> Action | Invalid:
    """Reads an action from any string. It never raises: a text without a meaning is an Invalid."""
    try:
        return _action(_fields(decision(text)))
    except _RefusedError as refusal:
        return Invalid(*refusal.args)


def decision(text: str) -> str:
    """Returns what follows 'Action Decision: ', or '' if the text has none."""
    return text.partition(DECISION)[2].strip()


@dataclasses.dataclass
class _Fields:
    """What a decision holds, each None until it was read."""

    action_type: ActionType | None = None
    touch_point: Point | None = None
    lift_point: Point | None = None
    typed_text: str | None = None


def _fields(text: str) -> _Fields:
    """Scans `"key": value` pairs from left to right, each at most once."""
    if not text:
        raise _RefusedError("no_decision", f"The text has no {DECISION!r}.")
    fields = _Fields()
    at = _skip(text, 0)
    while at < len(text):
        key = _KEY.match(text, at)
        if key is None:
            raise _RefusedError("bad_field", f"Expected a quoted key at {text[at : at + 20]!r}.")
        name, at = key[1], key.end()
        if name not in _VALUES:
            raise _RefusedError("bad_field", f"The key {name!r} is unknown.")
        if getattr(fields, name) is not None:
            raise _RefusedError("bad_field", f"The key {name!r} comes twice.")
        value, at = _VALUES[name](text, at)
        setattr(fields, name, value)
        at = _skip(text, at)
    return fields


def _skip(text: str, at: int) -> int:
    while at < len(text) and (text[at].isspace() or text[at] in ",;{}"):
        at += 1
    return at


def _type(text: str, at: int) -> tuple[ActionType, int]:
    value = _WORD.match(text, at)
    if value is None or value[1] not in ActionType.__members__:
        raise _RefusedError("bad_type", f"Unknown action type at {text[at : at + 30]!r}.")
    return ActionType(value[1]), value.end()


def _point(text: str, at: int) -> tuple[Point, int]:
    value = _POINT.match(text, at)
    if value is None:
        raise _RefusedError("bad_point", f"Expected a point at {text[at : at + 24]!r}.")
    try:
        return (float(value[1]), float(value[2])), value.end()
    except ValueError as error:
        raise _RefusedError("bad_point", f"Not numbers: {value[0]!r}.") from error


def _typed(text: str, at: int) -> tuple[str, int]:
    """Text up to the last quote of the string, which must not itself be escaped."""
    end = text.rfind('"')
    if text[at : at + 1] != '"' or end <= at:
        raise _RefusedError("cut_text", "The typed text has no closing quote.")
    raw = text[at + 1 : end]
    if (len(raw) - len(raw.rstrip("\\"))) % 2:
        raise _RefusedError("cut_text", "The typed text ends within an escaped quote.")
    return _ESCAPED.sub(r"\1", raw), end + 1


_VALUES: dict[str, Callable[[str, int], tuple[Any, int]]] = {
    "action_type": _type,
    "touch_point": _point,
    "lift_point": _point,
    "typed_text": _typed,
}


def _action(fields: _Fields) -> Action:
    """Keeps the fields that the type uses, and checks those alone."""
    kind, touch, lift = fields.action_type, fields.touch_point, fields.lift_point
    if kind is None:
        raise _RefusedError("bad_type", "The action has no type.")
    if kind is ActionType.TYPE:
        if fields.typed_text is None:
            raise _RefusedError("cut_text", "A TYPE has no typed text.")
        return Action(kind, text=fields.typed_text)
    if kind is not ActionType.DUAL_POINT:
        return Action(kind)
    if touch is None or lift is None:
        raise _RefusedError("bad_point", "A DUAL_POINT needs a touch point and a lift point.")
    if not all(0 <= value <= 1 for value in touch + lift):
        raise _RefusedError("off_screen", f"A DUAL_POINT lies off the screen: {touch}, {lift}.")
    return Action(kind, touch, lift)


def render(action: Action, plan: Sequence[ActionType] = ()) -> str:
    """Writes the full target text; an empty plan stands for the action's own type."""
    typed = re.sub(r'(["\\])', r"\\\1", action.text)
    return (
        f"Action Plan: [{','.join(plan or (action.type,))}] ; {DECISION} "
        f'"action_type": "{action.type}", "touch_point": "{_show(action.touch_yx)}", '
        f'"lift_point": "{_show(action.lift_yx)}", "typed_text": "{typed}"'
    )


def _show(point: Point) -> str:
    return "[-1.0, -1.0]" if point == NO_POINT else f"[{point[0]:.4f}, {point[1]:.4f}]"


def prompt(goal: str, previous_decision: str = "") -> str:
    """Writes the policy's input: what it did last and what it is asked to do."""
    return f"Previous Actions: {previous_decision} Goal: {goal}"


def matches(a: Action, b: Action, boxes: Sequence[Sequence[float]] = ()) -> bool:
    """Says whether two actions are the same by AitW's rule.

    Rawles et al., "Android in the Wild", section 4.3 and its released `action_matching.py`: taps
    match within 0.14 of the screen or inside one grown box, swipes by their main axis alone, other
    actions by type (typed text is not compared).

    Args:
      a: One action.
      b: The other one.
      boxes: Annotated elements of the screen as (y, x, height, width) fractions.
    """
    if a.type is not b.type:
        return False
    if a.type is not ActionType.DUAL_POINT:
        return True
    if a.is_swipe != b.is_swipe:
        return False
    if a.is_swipe:
        return _is_vertical(a) == _is_vertical(b)
    if math.dist(a.touch_yx, b.touch_yx) <= TAP_MATCH_DISTANCE:
        return True
    return any(_contains(box, a.touch_yx) and _contains(box, b.touch_yx) for box in boxes)


def _is_vertical(action: Action) -> bool:
    points = action.touch_yx, action.lift_yx
    down, right = (abs(lift - touch) for touch, lift in zip(*points, strict=True))
    return down >= right


def _contains(box: Sequence[float], point: Point) -> bool:
    """Whether a point is in a box grown as AitW grows it: the size is cut at 1, then the end."""
    for low, size, value in zip(box[:2], box[2:], point, strict=True):
        start = max(0.0, low - BOX_GROWTH * size / 2)
        if not start <= value <= start + min(1.0, size + BOX_GROWTH * size):
            return False
    return True
