"""Scores of predictions, by hand and on the pairs that AitW's own code answered."""

import json
import pathlib

import pytest

from common import actions, matching
from common.actions import Action, ActionType
from common.matching import Step

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "action_match.json"
TYPES = {
    3: ActionType.TYPE,
    4: ActionType.DUAL_POINT,
    5: ActionType.PRESS_BACK,
    6: ActionType.PRESS_HOME,
    7: ActionType.PRESS_ENTER,
    10: ActionType.STATUS_TASK_COMPLETE,
    11: ActionType.STATUS_TASK_IMPOSSIBLE,
}


def text(case: dict) -> str:
    kind = TYPES[case["type"]]
    points = (case["touch_yx"], case["lift_yx"]) if kind is ActionType.DUAL_POINT else ()
    action = Action(kind, *map(tuple, points), text="x" if kind is ActionType.TYPE else "")
    # More digits than `render` writes: some pairs lie on the very edge.
    said = actions.render(action)
    for point in points:
        said = said.replace(actions._show(tuple(point)), str(list(point)), 1)
    return said


def on_screen(case: dict) -> bool:
    """Others have no text; they are compared as actions, in test_actions.py."""
    points = [case[side][key] for side in "ab" for key in ("touch_yx", "lift_yx")]
    return all(0 <= value <= 1 or value == -1 for point in points for value in point)


def test_the_reference_s_answers_as_one_episode_and_as_many():
    cases = [case for case in json.loads(GOLDEN.read_text()) if on_screen(case)]
    assert len(cases) > 220
    steps = [Step(text(case["a"]), text(case["b"]), case["boxes_yxhw"]) for case in cases]
    right = sum(case["match"] for case in cases)
    assert 0 < right < len(cases)
    whole = matching.score([steps])
    assert (whole.steps, whole.matched, whole.episodes) == (len(cases), right, 1)
    assert whole.complete == whole.unparsable == whole.no_reference == 0
    single = matching.score([step] for step in steps)
    assert (single.episodes, single.complete) == (len(cases), right)
    assert whole.partial == single.partial == pytest.approx(right / len(cases))


TAP = actions.render(Action(ActionType.DUAL_POINT, (0.2, 0.5), (0.2, 0.5)))
HOME = actions.render(Action(ActionType.PRESS_HOME))


def test_partial_and_complete_scores_by_hand():
    score = matching.score(
        [
            [Step(TAP, TAP), Step(HOME, HOME)],  # 1
            [Step(TAP, HOME), Step(HOME, HOME), Step(HOME, "nonsense"), Step(TAP, TAP)],  # 1/2
            [Step("nonsense", TAP), Step(HOME, "")],  # 0 of the one step that has a reference
            [Step("nonsense", TAP)],  # no episode
        ]
    )
    assert (score.steps, score.matched, score.unparsable, score.no_reference) == (7, 4, 2, 2)
    assert (score.episodes, score.complete, score.partial) == (3, 1, 0.5)
    assert score.types == {"DUAL_POINT": (2, 3), "PRESS_HOME": (2, 4)}
    assert score.record()["step_share"] == pytest.approx(4 / 7)


def test_nothing_is_no_score():
    assert matching.score([]).record()["step_share"] == 0.0
