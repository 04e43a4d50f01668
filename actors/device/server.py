"""A small client of the adb server's socket.

The protocol is adb's SERVICES.TXT: a request is four hex digits of length and the text, the answer
OKAY or FAIL with a message. Every operation has one deadline for all of it: a device that dribbles
bytes for ever must not hold an actor for ever.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import socket
import struct
import subprocess
import time

from actors.device.causes import Cause, of_refusal
from common.errors import ConfigError, DeviceError

DEFAULT_PORT = 5037
STARTING_S = 5.0  # that a server takes from its first breath to its first answer, at most
_STDOUT, _STDERR, _EXIT = 1, 2, 3  # packet ids of shell_v2
_PACKET = struct.Struct("<BI")


def adb_path() -> str:
    """Returns where adb's binary is: on PATH, or in the adbutils wheel.

    Raises:
      ConfigError: There is none.
    """
    import adbutils  # takes a while, and only who starts a server needs it

    try:
        path = adbutils.adb_path()
    except adbutils.AdbError as error:
        raise ConfigError("There is no adb; `pip install adbutils` brings one.") from error
    if shutil.which(path) is None:
        raise ConfigError(f"There is no adb at {path}; correct or unset $ADBUTILS_ADB_PATH.")
    return path


def private_server(port: int, home: pathlib.Path) -> tuple[list[str], dict[str, str]]:
    """Returns what runs a server in the foreground that knows only devices told to it.

    Args:
      port: Where it listens.
      home: For its keys.

    Returns:
      The command, and variables for its environment.

    Raises:
      ConfigError: There is no adb.
    """
    command = [adb_path(), "-P", str(port), "nodaemon", "server"]
    return command, {"ADB_MDNS": "0", "ADB_USB": "0", "ADB_EMU": "0", "HOME": str(home)}


class AdbServer:
    """The adb server at an address; it holds no connection between calls."""

    def __init__(self, host: str = "127.0.0.1", port: int = DEFAULT_PORT):
        self.host = host
        self.port = port

    def query(self, request: str, timeout_s: float = 5.0) -> str:
        """Asks for a service that answers with one text, such as `host:devices`.

        Raises:
          DeviceError: The server refused, or took too long, or is gone.
        """
        with Channel(self, request, timeout_s) as channel:
            channel.request(request)
            return channel.read_text()

    def ensure(self) -> None:
        """Starts the server with adb's own binary if none answers; it is left running.

        Raises:
          ConfigError: There is no adb, or the server is remote, or it does not come up.
        """
        if self._answers():
            return
        where = f"{self.host}:{self.port}"
        if self.host not in ("127.0.0.1", "localhost"):
            raise ConfigError(f"No adb server answers at {where}; start one there.")
        if self._listens():
            # A server that somebody else has just started listens before it answers.
            if not self._comes_up():
                raise ConfigError(f"What listens at {where} is no adb server; name another port.")
            return
        try:
            command = [adb_path(), "-P", str(self.port), "start-server"]
            started = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"The adb server at {where} did not come up in 20 s.") from error
        # Two starters at once make one of them fail, though the server is up.
        if not self._comes_up():
            said = started.stderr.strip() or f"exit code {started.returncode}"
            raise ConfigError(f"The adb server at {where} did not come up: {said}")

    def _comes_up(self) -> bool:
        deadline = time.monotonic() + STARTING_S
        while not self._answers():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _answers(self) -> bool:
        try:
            return bool(self.query("host:version", timeout_s=2.0))
        except DeviceError:
            return False

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(2.0)
            return probe.connect_ex((self.host, self.port)) == 0

    def devices(self) -> dict[str, str]:
        """Returns the state of each serial that the server knows: device, offline, ..."""
        lines = self.query("host:devices").splitlines()
        return dict(line.split("\t", 1) for line in lines if "\t" in line)

    def dial(self, address: str, timeout_s: float = 15.0) -> str:
        """Lets the server connect to a device at host:port; returns what it says about it."""
        return self.query(f"host:connect:{address}", timeout_s)

    def redial(self, address: str, timeout_s: float = 15.0) -> str:
        """Lets the server connect to host:port anew, also if it believes that it is connected."""
        with contextlib.suppress(DeviceError):  # it was not connected
            self.query(f"host:disconnect:{address}", timeout_s)
        return self.dial(address, timeout_s)

    def register(self, adb_port: int) -> None:
        """Tells the server of an emulator on this machine, as emulators do when they start.

        A server that was restarted looks for emulators on the ports 5555 to 5585 alone.
        """
        with Channel(self, f"host:emulator:{adb_port}", 5.0) as channel:
            channel.send(f"host:emulator:{adb_port}")  # there is no answer

    def reconnect(self, serial: str) -> None:
        """Lets the server drop its connection to a phone and make a new one."""
        with Channel(self, f"{serial}: reconnect", 5.0) as channel:
            channel.request(f"host-serial:{serial}:reconnect")

    def shell(self, serial: str, command: str, timeout_s: float) -> tuple[bytes, bytes, int]:
        """Runs a command on a device.

        Returns:
          Its standard output, its standard error and its exit code.

        Raises:
          DeviceError: The answer is cut, late or refused: there is no exit code without its packet.
        """
        with Channel(self, f"{serial}: {command!r}", timeout_s) as channel:
            channel.request(f"host:transport:{serial}")
            channel.request(f"shell,v2,raw:{command}")
            output = {_STDOUT: bytearray(), _STDERR: bytearray()}
            while True:
                kind, size = _PACKET.unpack(channel.read(_PACKET.size))
                payload = channel.read(size)
                if kind == _EXIT:
                    return bytes(output[_STDOUT]), bytes(output[_STDERR]), payload[0]
                if kind in output:
                    output[kind] += payload


class Channel:
    """One connection to the adb server with one deadline; its errors name what was asked."""

    def __init__(self, server: AdbServer, what: str, timeout_s: float):
        self._what = what
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        try:
            self._socket = socket.create_connection((server.host, server.port), timeout_s)
        except OSError as error:
            where = f"{server.host}:{server.port}"
            raise DeviceError(
                f"{what}: no adb server at {where} ({error})", Cause.NO_SERVER
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, service: str) -> None:
        """Sends a request."""
        data = service.encode()
        try:
            self._socket.settimeout(self._left_s())
            self._socket.sendall(b"%04x" % len(data) + data)
        except OSError as error:
            raise self._failure(error) from error

    def request(self, service: str) -> None:
        """Sends a request and waits for OKAY."""
        self.send(service)
        status = self.read(4)
        if status != b"OKAY":
            said = self.read_text() if status == b"FAIL" else repr(status)
            raise DeviceError(f"{self._what}: the adb server says {said!r}", of_refusal(said))

    def read_text(self) -> str:
        try:
            size = int(self.read(4), 16)
        except ValueError as error:
            raise DeviceError(
                f"{self._what}: the adb server's answer has no length", Cause.CUT
            ) from error
        return self.read(size).decode(errors="replace")

    def read(self, size: int) -> bytes:
        """Reads exactly `size` bytes within what is left of the deadline."""
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            try:
                self._socket.settimeout(self._left_s())
                count = self._socket.recv_into(view[have:])
            except OSError as error:
                raise self._failure(error) from error
            if count == 0:
                raise DeviceError(
                    f"{self._what}: the connection ended before the answer did", Cause.CUT
                )
            have += count
        return bytes(data)

    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _failure(self, error: OSError) -> DeviceError:
        if isinstance(error, TimeoutError):
            return DeviceError(f"{self._what} took over {self._timeout_s:.3g} s", Cause.HUNG)
        return DeviceError(f"{self._what}: {error}", Cause.CUT)
