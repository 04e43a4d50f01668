"""The phone's shell: runs what adb clients send, without any process or file of the host.

It knows what clients of Android need of mksh: quoting, variables, command substitution, wildcards,
redirections, pipelines, && || ; ! and if, for, while, until, { } and ( ). Pipelines run one command
after the other, and there are no jobs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from typing import TYPE_CHECKING

from actors.phone import commands
from actors.phone.lexer import MAX_DEPTH, ShellSyntaxError, Substitution, Text, Variable, Word
from actors.phone.process import Call, Input, Output, ShellExit, Streams
from actors.phone.syntax import (
    For,
    Group,
    If,
    Loop,
    Pipeline,
    Redirect,
    Redirected,
    Script,
    Simple,
    parse,
)

if TYPE_CHECKING:
    from actors.phone.android import Android

_NAME = "/system/bin/sh"
_WILD = re.compile(r"[*?\[]")
_ENVIRONMENT = {
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "EXTERNAL_STORAGE": "/sdcard",
    "HOME": "/",
    "PATH": "/system/bin",
    "SHELL": _NAME,
    "TMPDIR": "/data/local/tmp",
    "USER": "root",
}


class Shell:
    """One shell: variables, working directory and last status, over a phone."""

    def __init__(self, android: Android, depth: int = 0):
        self.android = android
        self.variables = dict(_ENVIRONMENT)
        self.cwd = "/"
        self.status = 0
        self.exited = False  # whether `exit` ended it
        self._depth = depth

    async def run(self, source: str, streams: Streams) -> int:
        """Runs a command line to its end and returns its exit status, 0 to 255."""
        try:
            self.status = await self._script(parse(source), streams)
        except ShellSyntaxError as error:
            streams.err.write(f"{_NAME}: {error}\n".encode(errors="surrogateescape"))
            self.status = 1
        except ShellExit as exit_:
            self.status = exit_.status
            self.exited = True
        return self.status

    async def command(self, words: list[str], streams: Streams) -> int:
        """Runs one command, given as its words, and returns its exit status."""
        name, *args = words
        function = commands.COMMANDS.get(name.removeprefix("/system/bin/"))
        call = Call(self.android, self, name, args, streams)
        if function is None:
            return call.error(f"{_NAME}: {name}: inaccessible or not found", 127)
        try:
            result = function(call)
            status = await result if inspect.isawaitable(result) else result
        except OSError as error:
            return call.error(f"{name}: {error.filename}: {error.strerror}")
        return (status or 0) & 255

    def child(self) -> Shell:
        """Returns a shell that starts where this one is and leaves it unchanged."""
        shell = Shell(self.android, self._depth)
        shell.variables, shell.cwd, shell.status = dict(self.variables), self.cwd, self.status
        return shell

    async def _script(self, script: Script, streams: Streams) -> int:
        if self._depth > MAX_DEPTH:
            raise ShellSyntaxError("syntax error: nested too deeply")
        self._depth += 1
        for joint, pipeline in script:
            if joint == ";" or (joint == "&&") == (self.status == 0):
                self.status = await self._pipeline(pipeline, streams)
        self._depth -= 1
        return self.status

    async def _pipeline(self, pipeline: Pipeline, streams: Streams) -> int:
        *senders, last = pipeline.commands
        for sender in senders:
            pipe = Output()
            await self.child()._isolated(sender, dataclasses.replace(streams, out=pipe))
            streams = dataclasses.replace(streams, stdin=Input(pipe.take()))
        status = await self._node(last, streams)
        return int(status == 0) if pipeline.negated else status

    async def _isolated(self, node, streams: Streams) -> int:
        try:
            return await self._node(node, streams)
        except ShellExit as exit_:
            return exit_.status

    async def _node(self, node, streams: Streams) -> int:
        match node:
            case Simple():
                return await self._simple(node, streams)
            case Redirected():
                return await self._redirected(node, streams)
            case If():
                return await self._if(node, streams)
            case Loop():
                return await self._loop(node, streams)
            case For():
                return await self._for(node, streams)
            case Group(body, subshell=True):
                return await self.child()._isolated(Group(body, subshell=False), streams)
            case Group(body):
                return await self._script(body, streams)
        raise TypeError(node)

    async def _simple(self, node: Simple, streams: Streams) -> int:
        words = await self._fields(node.words, streams)
        assigned = {name: await self._text(word, streams) for name, word in node.assignments}
        if not words:
            self.variables |= assigned
            return self.status if any(map(_substitutes, node.assignments)) else 0
        if not assigned:
            return await self.command(words, streams)
        before = dict(self.variables)
        self.variables |= assigned
        try:
            return await self.command(words, streams)
        finally:
            self.variables = before

    async def _if(self, node: If, streams: Streams) -> int:
        for condition, body in node.branches:
            if await self._script(condition, streams) == 0:
                return await self._script(body, streams)
        return await self._script(node.otherwise, streams) if node.otherwise else 0

    async def _loop(self, node: Loop, streams: Streams) -> int:
        status = 0
        while (await self._script(node.condition, streams) == 0) != node.until:
            status = await self._script(node.body, streams)
            await streams.flush()
            await asyncio.sleep(0)  # other streams get their turn, and a closed one ends the loop
        return status

    async def _for(self, node: For, streams: Streams) -> int:
        status = 0
        for value in await self._fields(node.words, streams):
            self.variables[node.name] = value
            status = await self._script(node.body, streams)
        return status

    async def _redirected(self, node: Redirected, streams: Streams) -> int:
        files: list[tuple[str, Output]] = []
        try:
            for redirect in node.redirects:
                streams = await self._redirect(redirect, streams, files)
        except OSError as error:
            return _refused(streams, error)
        status = await self._node(node.command, streams)
        for path, output in files:
            try:
                self.android.files.write(path, output.take(), append=True)
            except OSError as error:
                status = _refused(streams, error)
        return status

    async def _redirect(
        self, redirect: Redirect, streams: Streams, files: list[tuple[str, Output]]
    ) -> Streams:
        target = await self._text(redirect.target, streams)
        if redirect.operator in (">&", "<&"):
            if target == "0" and redirect.descriptor == 0:
                return streams
            if target not in ("1", "2") or redirect.descriptor == 0:
                raise OSError(9, "bad file descriptor", target)
            return _replaced(
                streams, redirect.descriptor, [streams.out, streams.err][int(target) - 1]
            )
        if target in ("/dev/tty", "/dev/stdout"):
            return _replaced(streams, redirect.descriptor, streams.out)
        if target == "/dev/stderr":
            return _replaced(streams, redirect.descriptor, streams.err)
        path = self.android.files.normal(target, self.cwd)
        if redirect.operator == "<":
            return dataclasses.replace(streams, stdin=Input(self.android.files.read(path)))
        self.android.files.write(path, b"", append=redirect.operator == ">>")
        files.append((path, Output()))
        streams = _replaced(streams, redirect.descriptor, files[-1][1])
        return _replaced(streams, 2, files[-1][1]) if redirect.operator == "&>" else streams

    async def _text(self, word: Word, streams: Streams) -> str:
        """Expands a word into one string, without splitting and wildcards."""
        return "".join([await self._part(part, streams) for part in word])

    async def _fields(self, words: tuple[Word, ...], streams: Streams) -> list[str]:
        """Expands words as arguments: unquoted values are split and wildcards matched."""
        fields: list[str] = []
        for word in words:
            if len(word) == 1 and isinstance(word[0], Text):
                text, quoted = word[0].text, word[0].quoted
                if quoted or not _WILD.search(text):
                    fields.append(text)
                    continue
            for pattern in await self._patterns(word, streams):
                fields.extend(self._matches(pattern))
        return fields

    async def _patterns(self, word: Word, streams: Streams) -> list[str]:
        """Splits an expanded word; a backslash stands before each character that was quoted."""
        patterns: list[str] = []
        open_ = False  # whether the last pattern may still grow
        for part in word:
            value = await self._part(part, streams)
            if part.quoted:
                pieces, value = [_escaped(value)], ""
            elif isinstance(part, Text):
                pieces = [value] if value else []
            else:
                pieces = [piece.replace("\\", "\\\\") for piece in value.split()]
                open_ = open_ and not value[:1].isspace()
            if pieces and open_:
                patterns[-1] += pieces.pop(0)
            patterns.extend(pieces)
            if isinstance(part, Text) or part.quoted or value:
                open_ = bool(patterns) and not value[-1:].isspace()
        return patterns

    def _matches(self, pattern: str) -> list[str]:
        """Returns the paths that a pattern matches, or the pattern's own text if none."""
        literal = re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)
        if not _WILD.search(re.sub(r"\\.", "", pattern, flags=re.DOTALL)):
            return [literal]
        if pattern.startswith("/"):
            return self.android.files.glob(pattern) or [literal]
        prefix = self.cwd.rstrip("/") + "/"
        found = self.android.files.glob(_escaped(prefix) + pattern)
        return [path.removeprefix(prefix) for path in found] or [literal]

    async def _part(self, part: Text | Variable | Substitution, streams: Streams) -> str:
        if isinstance(part, Text):
            return part.text
        if isinstance(part, Variable):
            return await self._variable(part, streams)
        output = Output()
        child = self.child()
        self.status = await child.run(part.source, dataclasses.replace(streams, out=output))
        return output.take().decode(errors="surrogateescape").replace("\0", "").rstrip("\n")

    async def _variable(self, part: Variable, streams: Streams) -> str:
        special = {"?": str(self.status), "$": "4321", "#": "0", "0": "sh"}
        value = special.get(part.name, self.variables.get(part.name))
        if part.modifier == "#":
            return str(len(value or ""))
        present = bool(value) if part.modifier.startswith(":") else value is not None
        if part.modifier and present == part.modifier.endswith("+"):
            return await self._text(part.word, streams)
        return "" if value is None or part.modifier.endswith("+") else value


def _escaped(text: str) -> str:
    return re.sub(r"([\\*?\[\]!^-])", r"\\\1", text)


def _refused(streams: Streams, error: OSError) -> int:
    message = f"{_NAME}: can't open {error.filename}: {error.strerror}\n"
    streams.err.write(message.encode(errors="surrogateescape"))
    return 1


def _replaced(streams: Streams, descriptor: int, end: Output) -> Streams:
    """Returns the streams with another output; no command here knows more than two."""
    if descriptor == 1:
        return dataclasses.replace(streams, out=end)
    return dataclasses.replace(streams, err=end) if descriptor == 2 else streams


def _substitutes(assignment: tuple[str, Word]) -> bool:
    return any(isinstance(part, Substitution) for part in assignment[1])
