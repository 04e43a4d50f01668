"""Views of the simulated phone's screen, and how Pillow draws them.

Apps lay their views out on a canvas of 360x640 dp; a phone of another size stretches it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 360, 640  # dp
STATUS_BAR = 24  # height in dp
APP_BAR = 72  # where an app's content begins, in dp
KEYBOARD_TOP = 440  # the soft keyboard covers the screen from here on, in dp

Box = tuple[int, int, int, int]  # x0, y0, x1, y1; x1 and y1 lie outside
Color = tuple[int, int, int]

WHITE: Color = (255, 255, 255)
INK: Color = (24, 24, 28)
FAINT: Color = (120, 120, 126)
LINE: Color = (218, 218, 222)
PAPER: Color = (250, 250, 252)
ACCENT: Color = (30, 100, 240)

# Twelve colours that stay apart when a screen is shrunk to a thumbnail: no two are nearer than 92
# (Euclidean, of 255 a channel).
PALETTE: tuple[Color, ...] = (
    (232, 32, 32),
    (255, 132, 0),
    (252, 232, 0),
    (0, 200, 64),
    (0, 104, 60),
    (0, 206, 232),
    (24, 80, 250),
    (124, 134, 146),
    (124, 30, 186),
    (244, 44, 206),
    (130, 66, 12),
    (22, 22, 22),
)


@dataclasses.dataclass(frozen=True)
class View:
    """Something on the screen; `kind` says how it is drawn.

    Attributes:
      checked: None if the view cannot be checked.
      on_tap: What a tap does; None lets the tap through.
    """

    kind: str
    bounds: Box
    text: str = ""
    color: Color = WHITE
    description: str = ""
    id: str = ""
    detail: str = ""
    checked: bool | None = None
    focused: bool = False
    scrollable: bool = False
    on_tap: Callable[[], None] | None = dataclasses.field(default=None, compare=False)

    def contains(self, x: float, y: float) -> bool:
        x0, y0, x1, y1 = self.bounds
        return x0 <= x < x1 and y0 <= y < y1


def keyboard() -> list[View]:
    """The soft keyboard: it takes taps and does nothing with them, text comes from the shell."""
    return [View("keyboard", (0, KEYBOARD_TOP, WIDTH, HEIGHT), id="keyboard", on_tap=lambda: None)]


def dialog(text: str, wait: Callable[[], None], close: Callable[[], None]) -> list[View]:
    """A dialog of the system; taps beside its buttons do nothing."""
    return [
        View("shade", (0, STATUS_BAR, WIDTH, HEIGHT), id="shade", on_tap=lambda: None),
        View("box", (20, 240, 340, 420), color=PAPER),
        View("label", (36, 256, 324, 300), text, INK, id="android:id/alertTitle"),
        View("button", (36, 310, 324, 354), "Close app", id="android:id/aerr_close", on_tap=close),
        View("button", (36, 364, 324, 408), "Wait", id="android:id/aerr_wait", on_tap=wait),
    ]


def app_bar(title: str, color: Color) -> View:
    return View("bar", (0, STATUS_BAR, WIDTH, APP_BAR), title, color)


def shade(name: str) -> Color:
    """A fixed colour for a name, for pictures of things that have none of their own."""
    total = sum((i + 7) * ord(c) for i, c in enumerate(name))
    return (60 + total * 37 % 180, 60 + total * 59 % 180, 60 + total * 83 % 180)


def render(views: Sequence[View], width: int, height: int) -> Image.Image:
    """Draws the views in order, each over those before it."""
    image = Image.new("RGB", (width, height))
    pen = _Pen(image, width / WIDTH, height / HEIGHT)
    for view in views:
        _DRAW[view.kind](pen, view)
    pen.rectangle((0, 0, WIDTH, STATUS_BAR), INK)
    pen.text(10, 5, "10:00", 13, WHITE)
    pen.rectangle((330, 7, 350, 17), WHITE)
    return image


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font. Its layout is the basic one: raqm raises on some texts."""
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


@functools.lru_cache(maxsize=4096)
def _glyphs(text: str, size: int):
    """The text as a coverage mask, with the offset at which to draw it.

    Kept, because most texts stay: home takes 0.4 ms to draw, 1.4 ms without.
    """
    return _font(size).getmask2(text, mode="L", anchor="la")


class _Pen:
    """Draws in dp on an image of any size."""

    def __init__(self, image: Image.Image, scale_x: float, scale_y: float):
        self._draw = ImageDraw.Draw(image)
        self._x = scale_x
        self._y = scale_y

    def rectangle(
        self, box: Box, fill: Color | None, outline: Color | None = None, width: int = 1
    ) -> None:
        left, top = box[0] * self._x, box[1] * self._y
        # On a small screen a thin line still has a pixel.
        right, bottom = max(left, box[2] * self._x - 1), max(top, box[3] * self._y - 1)
        self._draw.rectangle(
            (left, top, right, bottom), fill, outline, max(1, round(width * self._x))
        )

    def text(self, x: float, y: float, text: str, size: int, color: Color, most: int = 40) -> None:
        if not text:
            return
        mask, (left, top) = _glyphs(text[:most], max(6, round(size * self._x)))
        at = (round(x * self._x) + left, round(y * self._y) + top)
        self._draw.draw.draw_bitmap(at, mask, self._draw.draw.draw_ink(color))

    def centered(self, box: Box, text: str, size: int, color: Color) -> None:
        pixels = max(6, round(size * self._x))
        x0, y0, x1, y1 = box
        x = (x0 + x1) / 2 - _font(pixels).getlength(text) / self._x / 2
        self.text(x, (y0 + y1) / 2 - size * 0.62, text, size, color)


def _ink_on(color: Color) -> Color:
    """Black or white, whichever is easier to read on the colour."""
    return INK if color[0] * 0.3 + color[1] * 0.59 + color[2] * 0.11 > 150 else WHITE


def _bar(pen: _Pen, view: View) -> None:
    x0, y0, _, y1 = view.bounds
    pen.rectangle(view.bounds, view.color)
    pen.text(x0 + 18, (y0 + y1) / 2 - 12, view.text, 20, _ink_on(view.color))


def _box(pen: _Pen, view: View) -> None:
    pen.rectangle(view.bounds, view.color)


def _label(pen: _Pen, view: View) -> None:
    x0, y0, _, _ = view.bounds
    pen.text(x0, y0, view.text, 17, view.color)
    pen.text(x0, y0 + 24, view.detail, 13, FAINT)


def _icon(pen: _Pen, view: View) -> None:
    x0, y0, x1, _ = view.bounds
    tile = (x0 + 10, y0 + 2, x1 - 10, y0 + 82)
    pen.rectangle(tile, view.color)
    pen.centered(tile, view.text[:1], 34, _ink_on(view.color))
    pen.centered((x0, y0 + 86, x1, y0 + 106), view.text, 14, INK)


def _row(pen: _Pen, view: View) -> None:
    x0, y0, x1, y1 = view.bounds
    middle = (y0 + y1) // 2
    pen.rectangle((x0 + 14, middle - 24, x0 + 62, middle + 24), view.color)
    pen.text(x0 + 78, middle - (20 if view.detail else 10), view.text, 17, INK)
    pen.text(x0 + 78, middle + 4, view.detail, 13, FAINT)
    pen.rectangle((x0, y1 - 1, x1, y1), LINE)
    if view.checked is not None:
        left = x1 - 64
        pen.rectangle(
            (left, middle - 13, left + 48, middle + 13), ACCENT if view.checked else (190, 190, 194)
        )
        knob = left + 24 if view.checked else left + 3
        pen.rectangle((knob, middle - 10, knob + 21, middle + 10), WHITE)


def _field(pen: _Pen, view: View) -> None:
    x0, y0, x1, y1 = view.bounds
    outline = ACCENT if view.focused else (160, 160, 166)
    pen.rectangle(view.bounds, view.color, outline, 4 if view.focused else 1)
    most = (x1 - x0 - 24) // 8
    if view.text:
        # The end of a long text stays in sight, where the caret is.
        pen.text(x0 + 12, (y0 + y1) / 2 - 10, view.text[-most:], 16, INK)
    elif not view.focused:
        pen.text(x0 + 12, (y0 + y1) / 2 - 10, view.description, 16, FAINT, most)


def _card(pen: _Pen, view: View) -> None:
    x0, y0, _, y1 = view.bounds
    pen.rectangle(view.bounds, WHITE, LINE)
    pen.rectangle((x0 + 8, y0 + 8, x0 + 78, y1 - 8), view.color)
    pen.text(x0 + 90, y0 + 14, view.text, 16, INK, 28)
    pen.text(x0 + 90, y0 + 40, view.detail, 13, FAINT, 34)


def _button(pen: _Pen, view: View) -> None:
    color = ACCENT if view.checked else view.color
    pen.rectangle(view.bounds, color)
    pen.centered(view.bounds, view.text, 17, _ink_on(color))


def _keyboard(pen: _Pen, view: View) -> None:
    x0, y0, x1, y1 = view.bounds
    pen.rectangle(view.bounds, (206, 210, 216))
    for line, keys in enumerate(("qwertyuiop", "asdfghjkl", "zxcvbnm")):
        left = x0 + (WIDTH - 36 * len(keys)) // 2
        top = y0 + 8 + line * 48
        for i, key in enumerate(keys):
            box = (left + i * 36 + 3, top, left + i * 36 + 33, top + 40)
            pen.rectangle(box, WHITE)
            pen.text(box[0] + 10, top + 9, key, 17, INK)
    pen.rectangle((x0 + 90, y1 - 46, x1 - 90, y1 - 8), WHITE)


def _shade(pen: _Pen, view: View) -> None:
    """Darkens what is behind by lines, which need no blending."""
    x0, y0, x1, y1 = view.bounds
    for y in range(y0, y1, 8):
        pen.rectangle((x0, y, x1, y + 4), FAINT)


_DRAW: dict[str, Callable[[_Pen, View], None]] = {
    "bar": _bar,
    "box": _box,
    "label": _label,
    "icon": _icon,
    "row": _row,
    "field": _field,
    "card": _card,
    "button": _button,
    "keyboard": _keyboard,
    "shade": _shade,
}
