"""The emulator's console: lines of text on a TCP port, each answered with OK or KO.

See developer.android.com/studio/run/emulator-console. It wants a token that is in a file, which its
greeting names; with an empty file it wants none.
"""

from __future__ import annotations

import pathlib
import re
import socket
import time

from actors.device.causes import Cause
from common.errors import DeviceError

_TOKEN_FILE = re.compile(r"'(.*emulator_console_auth_token)'")
_LAST = re.compile(rb"^(OK|KO.*)\r?\n\Z", re.MULTILINE)
_MAX_ANSWER = 1 << 20


def command(port: int, line: str, timeout_s: float = 10.0) -> str:
    """Runs one command and returns what it printed before OK.

    Args:
      port: Of the console, on this machine.
      line: Such as "avd snapshot load NAME".
      timeout_s: For all of it.

    Raises:
      DeviceError: It says KO, or nothing in time, or nobody is there.
    """
    deadline = time.monotonic() + timeout_s
    what = f"The console at port {port}"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
            greeting = _answer(connection, deadline, what)
            if "Authentication required" in greeting:
                connection.sendall(f"auth {_token(greeting)}\n".encode())
                _answer(connection, deadline, f"{what}, auth")
            connection.sendall(f"{line}\n".encode())
            return _answer(connection, deadline, f"{what}, {line!r}")
    except TimeoutError as error:
        raise DeviceError(f"{what}: {line!r} took over {timeout_s:g} s", Cause.HUNG) from error
    except OSError as error:
        raise DeviceError(f"{what}: {error}", Cause.EMULATOR) from error


def _answer(connection: socket.socket, deadline: float, what: str) -> str:
    data = bytearray()
    while not (last := _LAST.search(data)):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(4096)
        if not part or len(data) > _MAX_ANSWER:
            raise DeviceError(f"{what}: the answer has no end", Cause.CUT)
        data += part
    text = data.decode(errors="replace")
    if last[1].startswith(b"KO"):
        raise DeviceError(f"{what}: {text.strip()[:300]}", Cause.COMMAND)
    return text[: last.start()]


def _token(greeting: str) -> str:
    named = _TOKEN_FILE.search(greeting)
    home = pathlib.Path("~/.emulator_console_auth_token").expanduser()
    path = pathlib.Path(named[1]) if named else home
    try:
        return path.read_text().strip()
    except OSError as error:
        raise DeviceError(
            f"{path}: {error.strerror}; the console wants it", Cause.EMULATOR
        ) from error
