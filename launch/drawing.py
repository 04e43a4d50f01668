"""Actions drawn on screenshots."""

from __future__ import annotations

import math

from PIL import Image, ImageDraw, ImageFont

from common.actions import Action, ActionType, Invalid, Point

_COLOUR = (230, 30, 60)
_PAPER = (255, 255, 255)


def draw(screen: Image.Image, action: Action | Invalid) -> Image.Image:
    """Returns a copy with the action on it.

    A tap is a circle, a swipe an arrow from where it begins, and anything else a caption.

    Args:
      screen: RGB, of any size.
      action: What to show; for an invalid one the reason.
    """
    image = screen.copy()
    pen = ImageDraw.Draw(image)
    unit = max(2.0, min(image.size) / 100)  # 11 pixels on a phone
    if isinstance(action, Invalid) or action.type is not ActionType.DUAL_POINT:
        _caption(pen, image.size, unit, caption(action))
    elif action.is_swipe:
        _arrow(pen, _pixel(action.touch_yx, image), _pixel(action.lift_yx, image), unit)
    else:
        _circle(pen, _pixel(action.touch_yx, image), unit)
    return image


def caption(action: Action | Invalid) -> str:
    """Returns an action in a few words."""
    if isinstance(action, Invalid):
        return f"invalid: {action.reason}"
    if action.type is ActionType.TYPE:
        return f'type "{action.text}"'
    return action.type.removeprefix("STATUS_").replace("_", " ").lower()


def _pixel(point: Point, image: Image.Image) -> tuple[float, float]:
    """Returns x and y."""
    y, x = point
    return x * (image.width - 1), y * (image.height - 1)


def _circle(pen: ImageDraw.ImageDraw, centre: tuple[float, float], unit: float) -> None:
    for radius, colour in ((5 * unit, _PAPER), (4.5 * unit, _COLOUR)):  # seen on any ground
        pen.circle(centre, radius, outline=colour, width=max(1, round(unit)))
    pen.circle(centre, unit, fill=_COLOUR)


def _arrow(
    pen: ImageDraw.ImageDraw, start: tuple[float, float], end: tuple[float, float], unit: float
) -> None:
    (x, y), (to_x, to_y) = start, end
    angle = math.atan2(to_y - y, to_x - x)
    head = [
        (to_x - 5 * unit * math.cos(angle + turn), to_y - 5 * unit * math.sin(angle + turn))
        for turn in (-0.5, 0.5)
    ]
    for width, colour in ((2 * unit, _PAPER), (unit, _COLOUR)):
        pen.line([start, end], fill=colour, width=max(1, round(width)))
        pen.line([head[0], end, head[1]], fill=colour, width=max(1, round(width)), joint="curve")
    pen.circle(start, 1.5 * unit, fill=_COLOUR, outline=_PAPER)


def _caption(pen: ImageDraw.ImageDraw, size: tuple[int, int], unit: float, text: str) -> None:
    """Writes at the bottom, in as many lines as the text takes."""
    font = ImageFont.load_default(4 * unit)
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and pen.textlength(longer, font) > size[0] - 4 * unit:
            lines.append(line)
            longer = word
        line = longer
    lines = [*lines, line]
    height = 6 * unit * len(lines)
    pen.rectangle((0, size[1] - height - 2 * unit, *size), fill=_PAPER)
    for index, line in enumerate(lines):
        at = 2 * unit, size[1] - height - unit + 6 * unit * index
        pen.text(at, line, fill=_COLOUR, font=font)
