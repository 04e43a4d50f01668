"""Parses a shell command line into a tree."""

from __future__ import annotations

import dataclasses
import re

from actors.phone.lexer import (
    END,
    MAX_DEPTH,
    Lexer,
    Operator,
    ShellSyntaxError,
    Substitution,
    Text,
    Word,
)

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_REDIRECTION = re.compile(r"\d?[<>]|&>")
_CLOSERS = ("then", "elif", "else", "fi", "do", "done", "}")


@dataclasses.dataclass(frozen=True)
class Redirect:
    """`2>> word` and the like; `target` is a digit's word for >& and <&."""

    operator: str  # "<", ">", ">>", ">&" or "&>"
    descriptor: int
    target: Word


@dataclasses.dataclass(frozen=True)
class Simple:
    """name=word.. word..; the first word names the command."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]


@dataclasses.dataclass(frozen=True)
class If:
    """if..then pairs, and the else part or None."""

    branches: tuple[tuple[Script, Script], ...]
    otherwise: Script | None


@dataclasses.dataclass(frozen=True)
class Loop:
    """while, or until."""

    condition: Script
    body: Script
    until: bool


@dataclasses.dataclass(frozen=True)
class For:
    """for name in words."""

    name: str
    words: tuple[Word, ...]
    body: Script


@dataclasses.dataclass(frozen=True)
class Group:
    """{ body; } or (body); only the second keeps its variables to itself."""

    body: Script
    subshell: bool


@dataclasses.dataclass(frozen=True)
class Redirected:
    """A command with redirections, to be applied from left to right."""

    command: Command
    redirects: tuple[Redirect, ...]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """a | b | c, possibly with ! before it."""

    commands: tuple[Command, ...]
    negated: bool


Command = Simple | If | Loop | For | Group | Redirected
Script = tuple[tuple[str, Pipeline], ...]  # (";", "&&" or "||" before it, pipeline)


def parse(source: str) -> Script:
    """Parses a command line; raises ShellSyntaxError."""
    parser = _Parser(source)
    script = parser.script()
    if parser.ahead != END:
        raise parser.unexpected()
    return script


class _Parser:
    def __init__(self, source: str):
        self._lexer = Lexer(source)
        self._depth = 0
        self.ahead = self._lexer.token()

    def unexpected(self) -> ShellSyntaxError:
        shown = {"": "end of line", "\n": "newline"}.get(self._shown(), self._shown())
        return ShellSyntaxError(f"syntax error: unexpected '{shown}'")

    def script(self) -> Script:
        """Parses pipelines up to a word or operator that cannot start one."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ShellSyntaxError("syntax error: nested too deeply")
        items: list[tuple[str, Pipeline]] = []
        joint = ";"
        self._skip_newlines()
        while self._starts_command():
            items.append((joint, self._pipeline()))
            joint = self._joint()
            if not joint:
                break
        if joint in ("&&", "||"):
            raise self.unexpected()
        self._depth -= 1
        return tuple(items)

    def _joint(self) -> str:
        """Takes what separates two pipelines. There are no jobs: & runs to the end like ;."""
        for text in (";", "&", "\n", "&&", "||"):
            if self._take(text):
                self._skip_newlines()
                return text if text in ("&&", "||") else ";"
        return ""

    def _pipeline(self) -> Pipeline:
        negated = False
        while self._take_keyword("!"):
            negated = not negated
        commands = [self._command()]
        while self._take("|"):
            self._skip_newlines()
            commands.append(self._command())
        return Pipeline(tuple(commands), negated)

    def _command(self) -> Command:
        command: Command
        if self._take_keyword("if"):
            command = self._if()
        elif (loop := self._keyword()) in ("while", "until"):
            self._advance()
            command = Loop(self._block("do"), self._block("done"), until=loop == "until")
        elif self._take_keyword("for"):
            command = self._for()
        elif self._take_keyword("{"):
            command = Group(self._block("}"), subshell=False)
        elif self._take("("):
            command = Group(self._body(), subshell=True)
            self._expect(")")
        else:
            return self._simple()
        redirects = []
        while self._at_redirection():
            redirects.append(self._redirect())
        return Redirected(command, tuple(redirects)) if redirects else command

    def _simple(self) -> Command:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            if self._at_redirection():
                redirects.append(self._redirect())
            elif isinstance(self.ahead, Operator):
                break
            else:
                word = self._word()
                assignment = None if words else _assignment(word)
                if assignment:
                    assignments.append(assignment)
                else:
                    words.append(word)
        if not (assignments or words or redirects):
            raise self.unexpected()
        command = Simple(tuple(assignments), tuple(words))
        return Redirected(command, tuple(redirects)) if redirects else command

    def _redirect(self) -> Redirect:
        operator = self._shown()
        self._advance()
        digit = operator[0] if operator[0].isdecimal() else ""
        operator = operator.removeprefix(digit).replace(">|", ">")
        if operator == "<<":
            raise ShellSyntaxError("syntax error: here documents are not supported")
        descriptor = int(digit or ("0" if operator[0] == "<" else "1"))
        return Redirect(operator, descriptor, self._word())

    def _if(self) -> If:
        branches = [(self._block("then"), self._body())]
        while self._take_keyword("elif"):
            branches.append((self._block("then"), self._body()))
        otherwise = self._body() if self._take_keyword("else") else None
        self._expect_keyword("fi")
        return If(tuple(branches), otherwise)

    def _for(self) -> For:
        name = self._keyword() or ""
        self._advance()
        if not _ASSIGNMENT.fullmatch(name + "="):
            raise ShellSyntaxError("syntax error: for needs a name")
        words = []
        if self._take_keyword("in"):
            while not isinstance(self.ahead, Operator):
                words.append(self._word())
        self._joint()
        self._expect_keyword("do")
        return For(name, tuple(words), self._block("done"))

    def _body(self) -> Script:
        """Parses a script that is not empty."""
        script = self.script()
        if not script:
            raise self.unexpected()
        return script

    def _block(self, closing: str) -> Script:
        """Parses a script that is not empty, and the keyword that ends it."""
        script = self._body()
        self._expect_keyword(closing)
        return script

    def _starts_command(self) -> bool:
        if isinstance(self.ahead, Operator):
            return self.ahead.text == "(" or self._at_redirection()
        return self._keyword() not in _CLOSERS

    def _at_redirection(self) -> bool:
        return isinstance(self.ahead, Operator) and bool(_REDIRECTION.match(self.ahead.text))

    def _keyword(self) -> str | None:
        return _plain(self.ahead)

    def _shown(self) -> str:
        """Returns how a message shows the token ahead."""
        return self.ahead.text if isinstance(self.ahead, Operator) else self._keyword() or "word"

    def _word(self) -> Word:
        if isinstance(self.ahead, Operator):
            raise self.unexpected()
        word = self.ahead
        for part in word:
            if isinstance(part, Substitution):
                parse(part.source)  # so that a broken line is refused before anything of it runs
        self._advance()
        return word

    def _advance(self):
        self.ahead = self._lexer.token()

    def _take(self, operator: str) -> bool:
        taken = self.ahead == Operator(operator)
        if taken:
            self._advance()
        return taken

    def _take_keyword(self, keyword: str) -> bool:
        taken = self._keyword() == keyword
        if taken:
            self._advance()
        return taken

    def _expect(self, operator: str):
        if not self._take(operator):
            raise self.unexpected()

    def _expect_keyword(self, keyword: str):
        if not self._take_keyword(keyword):
            raise self.unexpected()

    def _skip_newlines(self):
        while self._take("\n"):
            pass


def _plain(token: Word | Operator) -> str | None:
    """Returns the text of a word without quotes and variables, else None."""
    if isinstance(token, tuple) and len(token) == 1 and isinstance(token[0], Text):
        return None if token[0].quoted else token[0].text
    return None


def _assignment(word: Word) -> tuple[str, Word] | None:
    first = word[0] if word else None
    if not isinstance(first, Text) or first.quoted:
        return None
    match = _ASSIGNMENT.match(first.text)
    if not match:
        return None
    rest = Text(first.text[match.end() :])
    return match[1], ((rest, *word[1:]) if rest.text else word[1:])
