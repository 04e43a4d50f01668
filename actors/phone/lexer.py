"""Cuts a shell command line into words and operators, as mksh does."""

from __future__ import annotations

import dataclasses
import re

MAX_DEPTH = 32

_BLANK = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_OPERATOR = re.compile(r"\d?(?:>>|>&|>\||>|<<|<&|<)|&>|&&|\|\||;;|[;&|()\n]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9?$!#*@-]")
_HOME = re.compile(r"~(?=[/ \t\n;&|()<>]|$)")
_LENGTH = re.compile(r"#(?=[A-Za-z_])")
_BACKQUOTED = re.compile(r"((?:[^`\\]|\\.)*)`", re.DOTALL)
_MODIFIER = re.compile(r":?[-+]")
_PLAIN = {  # runs of characters that mean themselves
    "word": re.compile(r"[^ \t\n;&|()<>\\'\"`$]+"),
    '"': re.compile(r"[^\"\\`$]+"),
    "}": re.compile(r"[^}\\'\"`$]+"),
}


class ShellSyntaxError(Exception):
    """The command line is no sentence of the shell's grammar that the phone knows."""


@dataclasses.dataclass(frozen=True)
class Text:
    """Characters that mean themselves; unquoted ones may be wildcards."""

    text: str
    quoted: bool = False


@dataclasses.dataclass(frozen=True)
class Variable:
    """$name, ${name}, ${#name}, ${name:-word} or ${name:+word}; unquoted values are split."""

    name: str
    quoted: bool
    modifier: str = ""  # "", "#", "-", ":-", "+" or ":+"
    word: Word = ()


@dataclasses.dataclass(frozen=True)
class Substitution:
    """$(source) or `source`; unquoted output is split."""

    source: str
    quoted: bool


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator or, as "", the end of the line; a redirection keeps its digit."""

    text: str


Word = tuple[Text | Variable | Substitution, ...]
END = Operator("")


class Lexer:
    """Yields tokens one by one from a position of a command line."""

    def __init__(self, source: str, position: int = 0, depth: int = 0):
        if depth > MAX_DEPTH:
            raise ShellSyntaxError("syntax error: nested too deeply")
        self._source = source
        self.position = position
        self._depth = depth

    def token(self) -> Word | Operator:
        """Returns the next token and moves on."""
        if blank := _BLANK.match(self._source, self.position):
            self.position = blank.end()
        if self.position >= len(self._source):
            return END
        if operator := _OPERATOR.match(self._source, self.position):
            self.position = operator.end()
            return Operator(operator[0])
        return self._word()

    def _word(self) -> Word:
        parts = []
        if _HOME.match(self._source, self.position):
            self.position += 1
            parts.append(Variable("HOME", quoted=True))
        return (*parts, *self._parts("word"))

    def _parts(self, mode: str) -> Word:
        """Reads up to the end of a word, or up to the closing quote or brace that `mode` names."""
        source, plain, quoted = self._source, _PLAIN[mode], mode == '"'
        parts: list[Text | Variable | Substitution] = []
        while self.position < len(source):
            if run := plain.match(source, self.position):
                parts.append(Text(run[0], quoted))
                self.position = run.end()
                continue
            char = source[self.position]
            if mode == "word" and char in " \t\n;&|()<>":
                return tuple(parts)
            self.position += 1
            if char == mode:
                return tuple(parts)
            if char == "$":
                parts.append(self._dollar(quoted))
            elif char == "`":
                parts.append(Substitution(self._backquoted(), quoted))
            elif char == "\\":
                parts.append(self._backslash(quoted))
            elif char == "'":
                parts.append(Text(self._until("'"), quoted=True))
            else:
                parts.extend(self._parts('"') or (Text("", quoted=True),))
        if mode != "word":
            raise ShellSyntaxError(f"syntax error: no closing {mode!r}".replace("'\"'", "quote"))
        return tuple(parts)

    def _until(self, closing: str) -> str:
        end = self._source.find(closing, self.position)
        if end < 0:
            raise ShellSyntaxError("syntax error: no closing quote")
        text = self._source[self.position : end]
        self.position = end + 1
        return text

    def _backslash(self, quoted: bool) -> Text:
        """Reads what follows a backslash: inside quotes it only escapes what is special there."""
        char = self._source[self.position : self.position + 1]
        self.position += 1
        if char == "\n":
            return Text("", quoted)
        if not char or (quoted and char not in '"\\$`'):
            return Text("\\" + char, quoted=True)
        return Text(char, quoted=True)

    def _dollar(self, quoted: bool) -> Text | Variable | Substitution:
        source, start = self._source, self.position
        if source.startswith("((", start):
            raise ShellSyntaxError("syntax error: $((..)) is not supported")
        if source.startswith("(", start):
            return Substitution(self._parenthesised(), quoted)
        if source.startswith("{", start):
            self.position += 1
            return self._braced(quoted)
        if name := _NAME.match(source, start):
            self.position = name.end()
            return Variable(name[0], quoted)
        return Text("$", quoted=True)

    def _braced(self, quoted: bool) -> Variable:
        """Reads the rest of ${...}."""
        source = self._source
        length = _LENGTH.match(source, self.position)
        self.position += bool(length)
        name = _NAME.match(source, self.position)
        if not name:
            raise ShellSyntaxError("syntax error: bad substitution")
        self.position = name.end()
        modifier = None if length else _MODIFIER.match(source, self.position)
        if modifier:
            self.position = modifier.end()
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise ShellSyntaxError("syntax error: nested too deeply")
            word = self._parts("}")
            self._depth -= 1
            return Variable(name[0], quoted, modifier[0], word)
        if not source.startswith("}", self.position):
            raise ShellSyntaxError("syntax error: bad substitution")
        self.position += 1
        return Variable(name[0], quoted, "#" if length else "")

    def _parenthesised(self) -> str:
        """Reads a (source) to the parenthesis that closes it, over quotes and nested ones."""
        inner = Lexer(self._source, self.position + 1, self._depth + 1)
        start, level = inner.position, 1
        while level:
            token = inner.token()
            if token == END:
                raise ShellSyntaxError("syntax error: no closing ')'")
            if isinstance(token, Operator):
                level += {"(": 1, ")": -1}.get(token.text, 0)
        self.position = inner.position
        return self._source[start : inner.position - 1]

    def _backquoted(self) -> str:
        """Reads to the closing backquote; inside, a backslash escapes $, ` and itself."""
        closing = _BACKQUOTED.match(self._source, self.position)
        if not closing:
            raise ShellSyntaxError("syntax error: no closing quote")
        self.position = closing.end()
        return re.sub(r"\\([$`\\])", r"\1", closing[1])
