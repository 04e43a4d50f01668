"""The language of actions against a regular expression and the parser."""

import random
import re

import numpy as np
import pytest

from common import actions
from common.actions import Action, ActionType
from common.models import grammar

NUMBER = r"(0\.\d{1,4}|1\.0{1,4})"
POINT = rf"\[{NUMBER}, {NUMBER}\]"
NOWHERE = r'"touch_point": "\[-1\.0, -1\.0\]", "lift_point": "\[-1\.0, -1\.0\]"'
KIND = f"({'|'.join(ActionType)})"
POINTLESS = f"({'|'.join(kind for kind in ActionType if kind not in ('DUAL_POINT', 'TYPE'))})"
TYPED = r'([^"\\\x00-\x1f\x7f-\x9f]|\\["\\])*'
ACTION = re.compile(
    rf" ?Action Plan: \[{KIND}(,{KIND})*\] ; Action Decision: "
    rf'("action_type": "DUAL_POINT", "touch_point": "{POINT}", "lift_point": "{POINT}"'
    rf', "typed_text": ""|"action_type": "{POINTLESS}", {NOWHERE}, "typed_text": ""'
    rf'|"action_type": "TYPE", {NOWHERE}, "typed_text": "{TYPED}")'
)
LANGUAGE = grammar.language()


def accepts(text: str) -> bool:
    place = grammar.START
    for byte in text.encode():
        place = LANGUAGE.following[place, byte]
    return place == LANGUAGE.end


def example(rng: random.Random) -> str:
    kind = rng.choice(list(ActionType))
    plan = rng.choices(list(ActionType), k=rng.randrange(1, 5))
    if kind is ActionType.DUAL_POINT:
        points = [(rng.choice([0, 0.5, 1, rng.random()]), rng.random()) for _ in range(2)]
        return actions.render(Action(kind, *points), plan)
    text = "".join(rng.choices('abc "\\,;[]é東🎉\x85\x7f', k=rng.randrange(6)))
    return actions.render(Action(kind, text=text if kind is ActionType.TYPE else ""), plan)


def test_it_takes_what_the_expression_takes():
    rng = random.Random(0)
    alphabet = 'aT_01.5-,[]"\\ ;:é\n'
    both = 0
    for _ in range(4000):
        text = example(rng)
        for _ in range(rng.randrange(3)):
            at, length = rng.randrange(len(text) + 1), rng.randrange(2)
            text = text[:at] + rng.choice([*alphabet, ""]) + text[at + length :]
        expected = ACTION.fullmatch(text) is not None
        assert accepts(text) == expected, text
        both += expected
    assert 1000 < both < 3000


def test_what_it_takes_can_be_read():
    rng = random.Random(1)
    for text in (*grammar.samples(), *(example(rng) for _ in range(1000))):
        if accepts(text):
            assert isinstance(actions.parse(text), Action), text


@pytest.mark.parametrize(
    "bad",
    [b"\x80", b"\xc1\x81", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"],
)
def test_typed_text_is_well_formed_utf_8(bad):
    start, rest = actions.render(Action(ActionType.TYPE, text="~")).encode().split(b"~")
    with pytest.raises(UnicodeDecodeError):
        bad.decode()
    place = grammar.START
    for byte in start + bad + rest:
        place = LANGUAGE.following[place, byte]
    assert place == grammar.NOWHERE


def test_the_samples_belong_to_it_and_use_all_its_places_but_typed_ones():
    seen = set()
    for text in grammar.samples():
        place = grammar.START
        for byte in text.encode():
            place = int(LANGUAGE.following[place, byte])
            seen.add(place)
        assert place == LANGUAGE.end
    reached = {int(place) for row in LANGUAGE.following for place in row} - {grammar.NOWHERE}
    leading_space = LANGUAGE.following[grammar.START, ord(" ")]
    assert leading_space in reached - seen
    for place in reached - seen:
        assert LANGUAGE.typed[place] or np.count_nonzero(LANGUAGE.following[place]) == 1
