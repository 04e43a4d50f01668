"""The language of actions: a deterministic automaton over the bytes of `actions.render`'s texts.

It has what Auto-UI's data has: a plan of one or more types, the decision's type, points with one to
four decimals for a DUAL_POINT and [-1.0, -1.0] for all others, and for a TYPE a text that has no
control characters and a backslash before its quotes and backslashes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from common.actions import Action, ActionType, render

NOWHERE, START = 0, 1
_DECIMALS = 4

# Well-formed UTF-8 beyond ASCII (RFC 3629, section 4), without the control characters after DEL.
_TAIL = (0x80, 0xBF)
_UTF8: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0xC2, 0xC2), (0xA0, 0xBF)),
    ((0xC3, 0xDF), _TAIL),
    ((0xE0, 0xE0), (0xA0, 0xBF), _TAIL),
    ((0xE1, 0xEC), _TAIL, _TAIL),
    ((0xED, 0xED), (0x80, 0x9F), _TAIL),
    ((0xEE, 0xEF), _TAIL, _TAIL),
    ((0xF0, 0xF0), (0x90, 0xBF), _TAIL, _TAIL),
    ((0xF1, 0xF3), _TAIL, _TAIL, _TAIL),
    ((0xF4, 0xF4), (0x80, 0x8F), _TAIL, _TAIL),
)


class Language(NamedTuple):
    """Places in an action's text and the way between them."""

    following: np.ndarray  # [places, 256] int32, the place after a byte; NOWHERE if it can't follow
    end: int  # where an action is complete
    typed: np.ndarray  # [places] bool, within the typed text of a TYPE


def language() -> Language:
    """Returns the language; an action may begin with a space, as T5's pieces have it."""
    places = _Places()
    plan, decision, nowhere = _frame()
    end, planned, pointless = places.new(), places.new(), places.new()
    first, later = places.write(START, plan), places.new()
    places.write(places.write(START, " "), plan, first)
    kinds = places.write(planned, decision[1:])
    places.write(pointless, nowhere[1:], end)
    typed: set[int] = set()
    for kind in ActionType:
        for item in (first, later):  # apart, because tokens may span all of a plan of one
            name = places.write(item, kind)
            places.write(name, ",", later)
            places.write(name, decision[:1], planned)
        name = places.write(kinds, kind)
        if kind is ActionType.DUAL_POINT:
            _write_points(places, name, end)
        elif kind is ActionType.TYPE:
            typed = _write_typed(places, places.write(name, nowhere[:-1]), end)
        else:
            places.write(name, nowhere[:1], pointless)
    following = np.zeros((len(places.following), 256), np.int32)
    for place, ways in enumerate(places.following):
        following[place, list(ways)] = list(ways.values())
    return Language(following, end, np.isin(np.arange(len(following)), list(typed)))


def samples() -> Iterator[str]:
    """Yields actions in which each fixed text stands beside all that may stand next to it."""
    for length in (1, 2, 3):
        for plan in itertools.product(ActionType, repeat=length):
            yield render(Action(ActionType.PRESS_HOME), plan)
    for kind in ActionType:
        if kind is not ActionType.DUAL_POINT:
            yield render(Action(kind))
    yield render(Action(ActionType.TYPE, text="a"))
    for number in _numbers():
        other = "1.0" if number < "1" else "0.5"
        for points in ((number,) * 4, (number, other) * 2, (other, number) * 2):
            yield _with_points(points)


def _numbers() -> Iterator[str]:
    for count in range(1, _DECIMALS + 1):
        yield f"1.{'0' * count}"
        for digits in itertools.product("0123456789", repeat=count):
            yield f"0.{''.join(digits)}"


def _with_points(numbers: Sequence[str]) -> str:
    """Returns the DUAL_POINT with these four numbers."""
    first, *texts = _around_numbers()
    return first + "".join(itertools.chain(*zip(numbers, texts, strict=True)))


def _frame() -> tuple[str, str, str]:
    """Returns what stands before the plan, after it and after a type that has no points."""
    plan, decision, rest = render(Action(ActionType.PRESS_HOME)).split(ActionType.PRESS_HOME)
    return plan, decision, rest


def _around_numbers() -> list[str]:
    """Returns the five fixed texts of a DUAL_POINT."""
    return render(Action(ActionType.DUAL_POINT, (0.5, 0.5), (0.5, 0.5))).split("0.5000")


class _Places:
    """An automaton that is being built."""

    def __init__(self) -> None:
        self.following: list[dict[int, int]] = [{}, {}]  # of NOWHERE and START

    def new(self) -> int:
        self.following.append({})
        return len(self.following) - 1

    def link(self, place: int, bytes_: bytes, to: int) -> None:
        """Leads from a place to another by each of the bytes."""
        self.following[place].update(dict.fromkeys(bytes_, to))

    def write(self, place: int, text: str, to: int | None = None) -> int:
        """Leads on by a text, along what is there; returns its end, which is `to` if given."""
        *before, last = text.encode()
        for byte in before:
            place = self._step(place, byte)
        if to is None:
            return self._step(place, last)
        self.link(place, bytes([last]), to)
        return to

    def _step(self, place: int, byte: int) -> int:
        if byte not in self.following[place]:
            self.following[place][byte] = self.new()
        return self.following[place][byte]


def _write_points(places: _Places, place: int, end: int) -> None:
    first, *texts = _around_numbers()
    place = places.write(place, first.split(ActionType.DUAL_POINT)[-1])
    for text in texts:
        after = places.new()
        for start, digits in (("0.", b"0123456789"), ("1.", b"0")):
            decimal = places.write(place, start)
            for _ in range(_DECIMALS):
                following = places.new()
                places.link(decimal, digits, following)
                places.write(following, text[:1], after)
                decimal = following
        place = places.write(after, text[1:], end if text == texts[-1] else None)


def _write_typed(places: _Places, inside: int, end: int) -> set[int]:
    """Leads from within the quotes past the closing one; returns the places between them."""
    escaped = places.new()
    places.link(inside, bytes(range(0x20, 0x7F)), inside)
    places.link(inside, b"\\", escaped)
    places.link(escaped, b'"\\', inside)
    places.link(inside, b'"', end)
    typed = {inside, escaped}
    for *ranges, (low, high) in _UTF8:
        place = inside
        for first, last in ranges:
            following = places.new()
            places.link(place, bytes(range(first, last + 1)), following)
            typed.add(following)
            place = following
        places.link(place, bytes(range(low, high + 1)), inside)
    return typed
