"""The action grammar against the peers' answers, and its own round trip."""

import json
import pathlib
import random
import string

import pytest

from common import actions
from common.actions import Action, ActionType, Invalid

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
PEER_TYPES = {
    "DualPoint": ActionType.DUAL_POINT,
    "Type": ActionType.TYPE,
    "GoHome": ActionType.PRESS_HOME,
    "GoBack": ActionType.PRESS_BACK,
    "Enter": ActionType.PRESS_ENTER,
    "TaskComplete": ActionType.STATUS_TASK_COMPLETE,
    "Idle": ActionType.STATUS_TASK_IMPOSSIBLE,  # the peer has no name of its own for it
}
AITW_TYPES = {
    3: ActionType.TYPE,
    4: ActionType.DUAL_POINT,
    5: ActionType.PRESS_BACK,
    6: ActionType.PRESS_HOME,
    7: ActionType.PRESS_ENTER,
    10: ActionType.STATUS_TASK_COMPLETE,
    11: ActionType.STATUS_TASK_IMPOSSIBLE,
}
BETTER = {"hello, world", "ratio: 3"}  # the peer raises on the first and cuts the second


def typed(text: str) -> str:
    return f'Action Decision: "action_type": "TYPE", "typed_text": "{text}"'


def test_parse_agrees_with_the_peer_where_the_peer_is_right():
    for case in json.loads((GOLDEN / "autoui_parse.json").read_text()):
        action = actions.parse(case["text"])
        peer = case.get("peer")
        if isinstance(action, Action) and action.text in BETTER:
            continue
        if peer is None:
            assert isinstance(action, Invalid), case["text"]
            continue
        assert action.type is PEER_TYPES[peer["type"]]
        if peer["touch_xy"]:
            assert action.touch_yx == tuple(reversed(peer["touch_xy"]))
            assert action.lift_yx == tuple(reversed(peer["lift_xy"]))
        assert action.text == (peer["typed"] or "")


@pytest.mark.parametrize(
    "text", [*sorted(BETTER), 'say "hi", "bye"', "a: b, c; {d}", '"typed_text": "x"', "tail "]
)
def test_typed_text_is_kept_whole_when_nothing_is_escaped(text):
    assert actions.parse(typed(text)) == Action(ActionType.TYPE, text=text)


def test_escaped_quotes_are_read_as_quotes():
    assert actions.parse(typed(r"a \"b\" \\ c")).text == r'a "b" \ c'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "no_decision"),
        ("Action Decision:", "no_decision"),
        ("Action Decision: tap it", "bad_field"),
        ('Action Decision: "colour": "RED"', "bad_field"),
        ('Action Decision: "action_type": "TYPE", "action_type": "TYPE"', "bad_field"),
        ('Action Decision: "action_type": "JUMP"', "bad_type"),
        ('Action Decision: "touch_point": "[0.5, 0.5]"', "bad_type"),
        ('Action Decision: "action_type": "DUAL_POINT", "touch_point": "[0.5, 0.5]"', "bad_point"),
        ('Action Decision: "action_type": "DUAL_POINT", "touch_point": "[e, .5]"', "bad_point"),
        ('Action Decision: "action_type": "DUAL_POINT", "touch_point": "[nan, .5]"', "bad_point"),
        ('Action Decision: "action_type": "TYPE"', "cut_text"),
        ('Action Decision: "action_type": "TYPE", "typed_text": "abc', "cut_text"),
        (r'Action Decision: "action_type": "TYPE", "typed_text": "abc\"', "cut_text"),
    ],
)
def test_a_text_without_a_meaning_is_named(text, name):
    answer = actions.parse(text)
    assert isinstance(answer, Invalid) and answer.name == name and answer.reason


@pytest.mark.parametrize("value", ["-1.0", "1.01", "1e9", "1e999", "-1e999"])
def test_points_off_the_screen_are_invalid(value):
    action = Action(ActionType.DUAL_POINT, (0.5, 0.5), (0.5, 0.5))
    text = actions.render(action).replace("0.5000, 0.5000", f"{value}, 0.5000", 1)
    assert actions.parse(text).name == "off_screen"


def random_action(rng: random.Random) -> Action:
    kind = rng.choice(list(ActionType))
    if kind is ActionType.DUAL_POINT:
        points = [(rng.randint(0, 10_000) / 1e4, rng.randint(0, 10_000) / 1e4) for _ in range(2)]
        return Action(kind, *points)
    if kind is ActionType.TYPE:
        alphabet = string.printable[:95] + '"\\' * 8 + "éß…語😀"
        return Action(kind, text="".join(rng.choices(alphabet, k=rng.randint(0, 40))))
    return Action(kind)


def test_an_action_survives_its_text():
    rng = random.Random(0)
    for _ in range(2_000):
        action = random_action(rng)
        plan = rng.choices(list(ActionType), k=rng.randint(0, 3))
        assert actions.parse(actions.render(action, plan)) == action


def test_every_string_has_an_answer():
    rng = random.Random(1)
    for _ in range(5_000):
        text = list(actions.render(random_action(rng)))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 3)] = rng.choices(string.printable + "é\0", k=2)
        cut = rng.randint(0, len(text))
        assert isinstance(actions.parse("".join(text[:cut])), (Action, Invalid))


def test_render_writes_the_target_text_exactly():
    assert actions.render(Action(ActionType.DUAL_POINT, (0.85, 0.6), (0.85, 0.6))) == (
        'Action Plan: [DUAL_POINT] ; Action Decision: "action_type": "DUAL_POINT", '
        '"touch_point": "[0.8500, 0.6000]", "lift_point": "[0.8500, 0.6000]", "typed_text": ""'
    )
    text = actions.render(Action(ActionType.PRESS_HOME), [ActionType.PRESS_HOME, ActionType.TYPE])
    assert text == (
        'Action Plan: [PRESS_HOME,TYPE] ; Action Decision: "action_type": "PRESS_HOME", '
        '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", "typed_text": ""'
    )
    assert actions.decision(text).startswith('"action_type": "PRESS_HOME"')


def test_a_dual_point_is_a_swipe_beyond_four_hundredths():
    assert not Action(ActionType.DUAL_POINT, (0.5, 0.5), (0.5, 0.539)).is_swipe
    assert Action(ActionType.DUAL_POINT, (0.5, 0.5), (0.53, 0.53)).is_swipe


def test_matching_agrees_with_the_released_code():
    for case in json.loads((GOLDEN / "action_match.json").read_text()):
        a, b = (
            Action(AITW_TYPES[x["type"]], tuple(x["touch_yx"]), tuple(x["lift_yx"]))
            for x in (case["a"], case["b"])
        )
        assert actions.matches(a, b, case["boxes_yxhw"]) == case["match"]
