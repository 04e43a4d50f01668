"""What the phone's adbd offers: shell, exec, sync, framebuffer and root."""

from __future__ import annotations

import functools
import struct

from actors.phone import sync
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
    if kind == "shell" and "v2" in modes:
        service = _interactive_v2 if not argument else _shell_v2
        return functools.partial(service, android, argument)
    if kind in ("shell", "exec") and argument:
        return functools.partial(_shell, android, argument)
    if kind == "sync":
        return functools.partial(sync.serve, android)
    if kind == "framebuffer":
        return functools.partial(_framebuffer, android)
    if kind == "root":
        return functools.partial(_say, b"adbd is already running as root\n")
    if kind == "remount":
        return functools.partial(_say, b"remount succeeded\n")
    return None  # reboot, tcpip, reverse, tcp, localabstract, ...


async def _say(text: bytes, stream: Stream):
    await stream.write(text)


async def _shell(android: Android, command: str, stream: Stream):
    """shell v1 and exec: both outputs in one, and no exit status."""
    output = Output()

    async def flush():
        await stream.write(output.take())

    streams = Streams(Input(source=stream.read_some), output, output, flush)
    await Shell(android).run(command, streams)
    await flush()


async def _shell_v2(android: Android, command: str, stream: Stream):
    streams = _streams_v2(stream)
    status = await Shell(android).run(command, streams)
    packets = _packets(streams)
    await stream.write(packets + _PACKET.pack(_EXIT, 1) + bytes([status]))


def _streams_v2(stream: Stream) -> Streams:
    out, err = Output(), Output()

    async def stdin() -> bytes:
        while True:
            kind, size = _PACKET.unpack(await stream.read(_PACKET.size))
            data = await stream.read(min(size, _MAX_STDIN))
            if kind == _CLOSE_STDIN:
                return b""
            if kind == _STDIN and data:
                return data

    async def flush():
        await stream.write(_packets(streams))

    streams = Streams(Input(source=stdin), out, err, flush)
    return streams


def _packets(streams: Streams) -> bytes:
    """Returns what was printed, as packets of shell v2."""
    packets = b""
    for kind, output in ((_STDOUT, streams.out), (_STDERR, streams.err)):
        data = output.take()
        if data:
            packets += _PACKET.pack(kind, len(data)) + data
    return packets


async def _interactive_v2(android: Android, _: str, stream: Stream):
    """Runs lines from standard input in one shell. The terminal is left to the host."""
    streams = _streams_v2(stream)
    shell = Shell(android)
    while line := await streams.stdin.read_line():
        await shell.run(line.decode(errors="surrogateescape"), streams)
        await streams.flush()
    await stream.write(_PACKET.pack(_EXIT, 1) + bytes([shell.status]))


async def _framebuffer(android: Android, stream: Stream):
    """Sends version 1 of the header (RGBA, 8 bits each) and the pixels."""
    pixels = android.raw()
    width, height = android.phone.size
    channels = (0, 8, 16, 8, 8, 8, 24, 8)  # offset and length of red, blue, green, alpha
    await stream.write(struct.pack("<13I", 1, 32, len(pixels), width, height, *channels))
    await stream.write(pixels)
