"""A TCP proxy that cuts connections and slows them down, as networks do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self

PIECE_BYTES = 16 * 1024


class Proxy:
    """Forwards connections to a port of this machine, on a thread of its own."""

    def __init__(self, target: int):
        self.port = 0
        self._target = target
        self._delay_s = 0.0  # for each piece
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        start = asyncio.start_server(self._accept, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(start, self._loop).result(5)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def cut(self, is_cut: bool) -> None:
        """Ends all connections and accepts no other, or accepts them again."""

        def change() -> None:
            self._is_cut = is_cut
            for writer in self._writers:
                writer.transport.abort()

        self._loop.call_soon_threadsafe(change)

    def slow_down(self, bytes_per_s: float) -> None:
        """Lets each connection carry no more than that; 0 lifts the limit."""
        self._delay_s = PIECE_BYTES / bytes_per_s if bytes_per_s else 0.0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, back}
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
            self._writers -= {writer, back}
        writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await asyncio.sleep(self._delay_s)
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()
