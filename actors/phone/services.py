"""What the phone's adbd offers: shell, exec, sync, framebuffer and root."""

from __future__ import annotations

import asyncio
import functools
import struct

from actors.phone import sync, terminal
from actors.phone.adbd import FEATURES, Service, Stream
from actors.phone.android import Android
from actors.phone.process import Input, Output, Streams
from actors.phone.shell import Shell

_PACKET = struct.Struct("<BI")  # shell v2: id, length
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
_MAX_STDIN = 1 << 20


def banner(android: Android) -> str:
    """Returns what the phone says about itself when adb connects."""
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    properties = "".join(f"{name}={android.properties[name]};" for name in names)
    return f"device::{properties}features={FEATURES}"


def find(android: Android, name: str) -> Service | None:
    """Returns the service that a host asked for, such as "shell,v2,raw:ls"; None refuses it."""
    kind, _, argument = name.partition(":")
    kind, *modes = kind.split(",")
    match kind:
        case "shell" | "exec":
            return functools.partial(_shell, android, argument, modes)
        case "sync":
            return functools.partial(sync.serve, android)
        case "framebuffer":
            return functools.partial(_framebuffer, android)
        case "root":
            return functools.partial(_say, b"adbd is already running as root\n")
        case "remount":
            return functools.partial(_say, b"remount succeeded\n")
    return None  # reboot, tcpip, reverse, tcp, localabstract, ...


async def _say(text: bytes, stream: Stream):
    await stream.write(text)


async def _shell(android: Android, command: str, modes: list[str], stream: Stream):
    """Runs one command, or lines from standard input if there is none."""
    host = _PacketHost(stream) if "v2" in modes else _PlainHost(stream)
    shell = Shell(android)
    faults = android.faults
    if command and not command.startswith("setprop debug.simphone"):  # which can end them
        if faults.hit("hang"):
            await asyncio.Event().wait()
        if faults.hit("drop"):
            stream.abort()
        if faults.hit("cut"):
            await stream.write(_PACKET.pack(_STDOUT, 100) + b"half")
            return
    if command:
        await shell.run(command, host.streams)
    else:
        await terminal.interact(shell, host.streams, tty="pty" in modes)
    await host.finish(shell.status)


class _PlainHost:
    """The host of exec and of the first shell: outputs in one, and no exit status."""

    def __init__(self, stream: Stream):
        self._stream = stream
        output = Output()
        self.streams = Streams(Input(source=stream.read_some), output, output, self._flush)

    async def _flush(self):
        await self._stream.write(self.streams.out.take())

    async def finish(self, status: int):
        await self._flush()


class _PacketHost:
    """The host of shell v2: packets tell the outputs apart, and the last is the exit status."""

    def __init__(self, stream: Stream):
        self._stream = stream
        self.streams = Streams(Input(source=self._stdin), Output(), Output(), self._flush)

    async def _stdin(self) -> bytes:
        while True:
            kind, size = _PACKET.unpack(await self._stream.read(_PACKET.size))
            if size > _MAX_STDIN:
                return b""
            data = await self._stream.read(size)
            if kind == _CLOSE_STDIN:
                return b""
            if kind == _STDIN and data:
                return data

    async def _flush(self):
        await self._stream.write(self._packets())

    async def finish(self, status: int):
        await self._stream.write(self._packets() + _PACKET.pack(_EXIT, 1) + bytes([status]))

    def _packets(self) -> bytes:
        packets = b""
        for kind, output in ((_STDOUT, self.streams.out), (_STDERR, self.streams.err)):
            data = output.take()
            if data:
                packets += _PACKET.pack(kind, len(data)) + data
        return packets


async def _framebuffer(android: Android, stream: Stream):
    """Sends version 1 of the header (RGBA, 8 bits each) and the pixels."""
    pixels = android.raw()
    width, height = android.phone.size
    channels = (0, 8, 16, 8, 8, 8, 24, 8)  # offset and length of red, blue, green, alpha
    await stream.write(struct.pack("<13I", 1, 32, len(pixels), width, height, *channels))
    await stream.write(pixels)
