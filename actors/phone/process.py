"""What a running command of the phone sees: its words, its streams and the phone."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.phone.android import Android
    from actors.phone.shell import Shell


class ShellExit(Exception):  # noqa: N818 - no error
    """`exit` was called, with this status."""

    def __init__(self, status: int):
        super().__init__(status)
        self.status = status


class Input:
    """A stream of bytes that has an end: given whole, or chunk by chunk from `source`."""

    def __init__(self, data: bytes = b"", source: Callable[[], Awaitable[bytes]] | None = None):
        self._data = bytearray(data)
        self._source = source  # returns b"" at the end

    async def read(self, size: int | None = None) -> bytes:
        """Returns everything that is left, or `size` bytes if there are as many."""
        while (size is None or len(self._data) < size) and await self._fill():
            pass
        return self._take(len(self._data) if size is None else size)

    async def read_line(self) -> bytes:
        """Returns a line with its end, or b"" at the end of the stream."""
        while b"\n" not in self._data and await self._fill():
            pass
        return self._take(self._data.find(b"\n") + 1 or len(self._data))

    async def _fill(self) -> bool:
        chunk = await self._source() if self._source else b""
        if not chunk:
            self._source = None
        self._data += chunk
        return bool(chunk)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken


class Output:
    """Collects chunks of bytes without copying them."""

    def __init__(self):
        self._chunks: list[bytes] = []

    def write(self, data: bytes):
        if data:
            self._chunks.append(data)

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _nothing():
    pass


@dataclasses.dataclass(frozen=True)
class Streams:
    """Standard input, output and error; `flush` hands output on before a command waits."""

    stdin: Input
    out: Output
    err: Output
    flush: Callable[[], Awaitable[None]] = _nothing


@dataclasses.dataclass(frozen=True)
class Call:
    """One command that runs. A command is a function of it that returns an exit status or None."""

    android: Android
    shell: Shell
    name: str
    args: list[str]
    streams: Streams

    def print(self, *lines: str):
        self.streams.out.write(
            "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
        )

    def write(self, data: bytes):
        self.streams.out.write(data)

    def error(self, message: str, status: int = 1) -> int:
        """Writes a line on stderr and returns the status to return."""
        self.streams.err.write(f"{message}\n".encode(errors="surrogateescape"))
        return status

    def path(self, path: str) -> str:
        return self.android.files.normal(path, self.shell.cwd)

    def save(self, path: str, data: bytes):
        """Writes a file, or standard output where the path says so; raises OSError."""
        if path in ("/dev/tty", "/dev/stdout", "-"):
            self.write(data)
        else:
            self.android.files.write(self.path(path), data)


Command = Callable[[Call], int | Awaitable[int | None] | None]


def options(args: Iterable[str], with_value: str = "") -> tuple[dict[str, str], list[str]]:
    """Splits words into options and the others: ({"-n": "a/b", "-W": ""}, ["word"]).

    Args:
      args: Words of a command line; empty ones, which some clients send, are dropped.
      with_value: The options that take the next word, separated by blanks.
    """
    takers, found, rest = with_value.split(), {}, []
    words = iter(args)
    for word in words:
        if word in takers:
            found[word] = next(words, "")
        elif word.startswith("-") and len(word) > 1:
            found[word] = ""
        elif word:
            rest.append(word)
    return found, rest
