"""A shell for a person: lines are read, run and answered one by one."""

from __future__ import annotations

from actors.phone.process import Streams
from actors.phone.shell import Shell

_PROMPT = b"simphone:/ # "
_MAX_LINE = 4096
_END_OF_FILE, _INTERRUPT = 0x04, 0x03
_ERASE = (0x08, 0x7F)
_ENTER = (0x0A, 0x0D)


async def interact(shell: Shell, streams: Streams, tty: bool):
    """Runs lines of standard input until its end or `exit`.

    Args:
      shell: Runs the lines; its variables live from line to line.
      streams: The streams to the host.
      tty: Whether the host's terminal sends every key and leaves it to us to show it.
    """
    if not tty:
        while not shell.exited and (line := await streams.stdin.read_line()):
            await shell.run(_text(line), streams)
            await streams.flush()
        return
    while not shell.exited:
        streams.out.write(_PROMPT)
        await streams.flush()
        edited = await _edited_line(streams)
        if edited is None:
            return
        await shell.run(_text(edited), streams)
        for output in (streams.out, streams.err):
            output.write(output.take().replace(b"\n", b"\r\n"))


async def _edited_line(streams: Streams) -> bytes | None:
    """Reads keys up to ENTER and shows them; None at the end of the input."""
    line = bytearray()
    while key := await streams.stdin.read(1):
        code = key[0]
        if code in _ENTER:
            streams.out.write(b"\r\n")
            await streams.flush()
            return bytes(line)
        if code == _END_OF_FILE and not line:
            return None
        if code == _INTERRUPT:
            streams.out.write(b"^C\r\n" + _PROMPT)
            line.clear()
        elif code in _ERASE:
            streams.out.write(b"\b \b" * bool(line))
            del line[-1:]
        elif code >= 0x20 and len(line) < _MAX_LINE:
            streams.out.write(key)
            line += key
        await streams.flush()
    return None


def _text(line: bytes) -> str:
    return line.decode(errors="surrogateescape")
