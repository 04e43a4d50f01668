"""The device side of adb's transport: packets, and streams that services read and write.

A packet is six little-endian words (command, two arguments, payload length, checksum, command
inverted) and a payload. A stream is opened by the host, sends one packet at a time, and waits for
its acknowledgement. See Android's packages/modules/adb/protocol.txt.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine

logger = logging.getLogger(__name__)

VERSION = 0x01000001  # from here on, checksums are not looked at
MAX_PAYLOAD = 1 << 20
MAX_STREAMS = 256
FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,sendrecv_v2,apex"

_HEADER = struct.Struct("<6I")
_CNXN, _OPEN, _OKAY, _WRTE, _CLSE, _AUTH = (
    int.from_bytes(name, "little")
    for name in (b"CNXN", b"OPEN", b"OKAY", b"WRTE", b"CLSE", b"AUTH")
)
_TOKEN, _PUBLIC_KEY = 1, 3  # of AUTH: what the host is to sign; its key, for a person to accept


class ProtocolError(Exception):
    """The host broke the transport's rules; the connection ends."""


class Stream:
    """One service's two-way stream of bytes."""

    def __init__(self, connection: Connection, local_id: int, remote_id: int):
        self._connection = connection
        self.local_id = local_id
        self.remote_id = remote_id
        self._received = bytearray()
        self._arrived = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._unacknowledged = 0  # received packets that were not read yet: at most one

    async def write(self, data: bytes):
        """Sends all of the data; returns when the host has taken it."""
        view = memoryview(data)
        size = self._connection.max_payload
        for start in range(0, len(view), size):
            self._acknowledged.clear()
            self._connection.send(_WRTE, self.local_id, self.remote_id, view[start : start + size])
            await self._connection.drain()
            await self._acknowledged.wait()

    async def read_some(self) -> bytes:
        """Returns what has arrived, after waiting for at least one byte."""
        while not self._received:
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(self._received)
        self._received.clear()
        self._acknowledge()
        return data

    async def read(self, size: int) -> bytes:
        """Returns exactly `size` bytes."""
        while len(self._received) < size:
            self._acknowledge()
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        if not self._received:
            self._acknowledge()
        return data

    def abort(self):
        """Breaks the whole connection off."""
        self._connection.abort()

    def receive(self, data: bytes):
        """Takes a packet from the host; the next one may come when this one was read."""
        if self._unacknowledged:
            raise ProtocolError("a second packet before the first was acknowledged")
        self._unacknowledged = 1
        self._received += data
        self._arrived.set()

    def acknowledge(self):
        """The host took the last packet."""
        self._acknowledged.set()

    def _acknowledge(self):
        if self._unacknowledged:
            self._unacknowledged = 0
            self._connection.send(_OKAY, self.local_id, self.remote_id)


Service = Callable[[Stream], Coroutine[None, None, None]]
Services = Callable[[str], Service | None]  # from a name such as "shell:ls"; None refuses it


class Connection:
    """One adb server's (or client's) connection to the phone."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        services: Services,
        banner: str,
        greets: Callable[[], str] = lambda: "device",
    ):
        """Serves a host.

        Args:
          reader: From the host.
          writer: To the host.
          services: Finds a service by its name.
          banner: What the phone says about itself.
          greets: How it answers a host that connects: as a "device", "unauthorized" or "offline".
        """
        self._reader = reader
        self._writer = writer
        self._services = services
        self._banner = banner
        self._greets = greets
        self._checksums = False
        self._streams: dict[int, tuple[Stream, asyncio.Task]] = {}
        self._last_id = 0
        self.max_payload = MAX_PAYLOAD
        self.connected = asyncio.Event()

    async def serve(self):
        """Handles packets until the host goes away or breaks the protocol, or it is cancelled."""
        try:
            while True:
                await self._packet()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except ProtocolError as error:
            logger.warning("Dropped an adb connection: %s.", error)
        finally:
            self._writer.transport.abort()  # a host that does not read can't hold us up
            tasks = [task for _, task in self._streams.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def send(self, command: int, first: int, second: int, payload: bytes | memoryview = b""):
        checksum = sum(payload) & 0xFFFFFFFF if self._checksums else 0
        header = _HEADER.pack(command, first, second, len(payload), checksum, command ^ 0xFFFFFFFF)
        if len(payload) < 1 << 14:
            self._writer.write(header + payload)  # one segment, and a copy that costs nothing
        else:
            self._writer.write(header)
            self._writer.write(payload)

    def abort(self):
        self._writer.transport.abort()

    async def drain(self):
        await self._writer.drain()

    async def _packet(self):
        header = await self._reader.readexactly(_HEADER.size)
        command, first, second, size, _, inverted = _HEADER.unpack(header)
        if command ^ inverted != 0xFFFFFFFF or size > MAX_PAYLOAD:
            raise ProtocolError("no valid packet header")
        payload = await self._reader.readexactly(size) if size else b""
        if command == _CNXN:
            self._connect(first, second)
        elif not self.connected.is_set():
            raise ProtocolError("a packet before CNXN")
        elif command == _OPEN:
            self._open(first, payload)
        elif command == _AUTH:
            if first != _PUBLIC_KEY:  # nobody looks at the screen to accept it
                self.send(_AUTH, _TOKEN, 0, bytes(20))
        elif command in (_WRTE, _OKAY, _CLSE):
            if second in self._streams:
                self._pass_on(command, second, payload)
        else:
            raise ProtocolError(f"unknown command {command:#x}")

    def _connect(self, version: int, max_payload: int):
        if max_payload < 1:
            raise ProtocolError("a maximum payload of 0")
        self._checksums = version < VERSION
        self.max_payload = min(max_payload, MAX_PAYLOAD)
        greets = self._greets()
        if greets == "unauthorized":
            self.send(_AUTH, _TOKEN, 0, bytes(20))
        elif greets == "device":
            self.send(_CNXN, min(version, VERSION), MAX_PAYLOAD, self._banner.encode())
        self.connected.set()

    def _open(self, remote_id: int, payload: bytes):
        name = payload.rstrip(b"\0").decode(errors="surrogateescape")
        service = self._services(name) if len(self._streams) < MAX_STREAMS else None
        if service is None:
            # With any other id than 0, adb would take it for another stream and wait for ever.
            self.send(_CLSE, 0, remote_id)
            return
        self._last_id += 1
        stream = Stream(self, self._last_id, remote_id)
        self.send(_OKAY, stream.local_id, remote_id)
        task: asyncio.Task[None] = asyncio.create_task(service(stream), name=name[:80])
        self._streams[stream.local_id] = (stream, task)
        task.add_done_callback(lambda task: self._finished(stream, task))

    def _finished(self, stream: Stream, task: asyncio.Task):
        if not task.cancelled() and task.exception() is not None:
            logger.error("Service %r failed.", task.get_name(), exc_info=task.exception())
        if self._streams.pop(stream.local_id, None) and not self._writer.is_closing():
            self.send(_CLSE, stream.local_id, stream.remote_id)

    def _pass_on(self, command: int, local_id: int, payload: bytes):
        stream, task = self._streams[local_id]
        if command == _WRTE:
            stream.receive(payload)
        elif command == _OKAY:
            stream.acknowledge()
        else:
            del self._streams[local_id]
            task.cancel()
            self.send(_CLSE, local_id, stream.remote_id)  # adb-shell waits for this answer
