"""Typed text arrives, or the action fails with a name."""

import base64
import shlex
from xml.sax.saxutils import quoteattr

import pytest

from actors.device.keyboard import ADB_KEYBOARD, Typed, type_text
from common.errors import DeviceError

TEXTS = [
    "hello world",
    "100%sure",
    "%%s%s",
    'it\'s "q" $x `y` & | ; < > ( ) # * ~ \\',
    "-d 1",
    "a  b",
]


class Field:
    """A phone with a text field, in the focus or not."""

    def __init__(self, focused: bool = True, keyboard: str = "", installed: bool = False):
        self.text = ""
        self.commands: list[str] = []
        self.focused = focused
        self.keyboard = keyboard
        self.installed = installed
        self.show = lambda: self.text

    def shell(self, command: str) -> tuple[str, str, int]:
        return self.must(command), "", 0

    def must(self, command: str) -> str:
        self.commands.append(command)
        if command.startswith("settings get"):
            return f"{self.keyboard}\n"
        if command.startswith("ime list"):
            return f"a/.B\n{ADB_KEYBOARD}\n" if self.installed else "a/.B\n"
        if command.startswith("ime enable"):
            self.keyboard = ADB_KEYBOARD
        elif command.startswith("am broadcast"):
            self.text += base64.b64decode(command.split()[-1]).decode()
        else:
            for part in command.split(" && input"):
                self.text += shlex.split(part)[-1].replace("%s", " ")
        return ""

    def dump(self) -> str:
        node = f"<node text={quoteattr(self.show())} focused='{str(self.focused).lower()}'/>"
        return f"<hierarchy>{node}</hierarchy>"


@pytest.mark.parametrize("text", TEXTS)
def test_typed_text_arrives_unchanged(text):
    field = Field()
    assert type_text(field, text, 0.0) is Typed.ARRIVED
    assert field.text == text


@pytest.mark.parametrize(
    "field", [Field(keyboard=ADB_KEYBOARD), Field(keyboard="a/.B", installed=True)]
)
def test_what_input_cannot_type_goes_through_adb_keyboard(field):
    assert type_text(field, "smörgås 語", 0.0) is Typed.ARRIVED
    assert field.text == "smörgås 語"
    assert field.keyboard == ADB_KEYBOARD


@pytest.mark.parametrize("text", ["", "é", "a\nb", "\x00", "a\tb"])
def test_what_nothing_can_type_is_not_sent(text):
    field = Field()
    assert type_text(field, text) is Typed.UNTYPABLE
    assert not any(command.startswith("input") for command in field.commands)


def test_typing_without_a_field_is_no_typing():
    assert type_text(Field(focused=False), "hi") is Typed.NO_FIELD


def test_text_that_does_not_show_is_lost():
    field = Field()
    field.show = lambda: "Search"
    assert type_text(field, "hi", 0.0) is Typed.LOST


def test_a_field_may_take_a_moment():
    field = Field()
    shows = iter(["", "h", "hi"])
    field.show = lambda: next(shows)
    assert type_text(field, "hi", 5.0) is Typed.ARRIVED


def test_a_password_shows_as_dots():
    field = Field()
    field.show = lambda: "••••"
    assert type_text(field, "abcd", 0.0) is Typed.ARRIVED


def test_without_a_view_tree_nobody_knows():
    field = Field()

    def dump() -> str:
        raise DeviceError("no views", "views")

    field.dump = dump
    assert type_text(field, "hi", 0.0) is Typed.UNREAD
