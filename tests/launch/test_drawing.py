import numpy as np
from PIL import Image

from common.actions import Action, ActionType, Invalid
from launch import drawing

GREY = (90, 90, 90)


def _changed(action, size=(200, 400)):
    """Returns where [H, W] the action was drawn."""
    screen = Image.new("RGB", size, GREY)
    drawn = drawing.draw(screen, action)
    assert drawn.size == size
    assert np.all(np.asarray(screen) == GREY)  # it is a copy
    return np.any(np.asarray(drawn) != GREY, axis=-1)


def _box(changed):
    rows, columns = np.nonzero(changed)
    return rows.min(), rows.max(), columns.min(), columns.max()


def test_a_tap_is_a_circle_around_its_point():
    changed = _changed(Action(ActionType.DUAL_POINT, (0.25, 0.75), (0.25, 0.75)))
    top, bottom, left, right = _box(changed)
    assert abs((top + bottom) / 2 - 100) <= 1
    assert abs((left + right) / 2 - 149) <= 1
    assert bottom - top < 30
    assert changed[100, 149]


def test_a_swipe_is_a_line_with_its_head_at_the_end():
    changed = _changed(Action(ActionType.DUAL_POINT, (0.75, 0.5), (0.25, 0.5)))
    top, bottom, _, _ = _box(changed)
    assert abs(top - 100) <= 3
    assert abs(bottom - 299) <= 5
    assert changed[101:298, 99].all()
    widths = changed.sum(axis=1)
    assert widths[100:110].max() > widths[270:].max()


def test_a_tap_in_a_corner_is_cut_off():
    assert _changed(Action(ActionType.DUAL_POINT, (1.0, 1.0), (1.0, 1.0)))[-1, -1]


def test_all_else_is_a_caption_at_the_bottom_and_long_ones_take_more_lines():
    heights = []
    for text in ("pizza", "best pizza near me " * 4):
        changed = _changed(Action(ActionType.TYPE, text=text))
        assert not changed[:200].any()
        assert changed[-1].all()
        heights.append(int(changed.any(axis=1).sum()))
    assert heights[1] >= heights[0] + 12


def test_captions():
    for action, words in (
        (Action(ActionType.TYPE, text="a b"), 'type "a b"'),
        (Action(ActionType.PRESS_BACK), "press back"),
        (Action(ActionType.STATUS_TASK_COMPLETE), "task complete"),
        (Invalid("bad_type", "The action has no type."), "invalid: The action has no type."),
    ):
        assert drawing.caption(action) == words
