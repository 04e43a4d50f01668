"""Serves simulated phones to adb: one TCP port each, registered with the adb server."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging

from actors.phone import services
from actors.phone.adbd import Connection
from actors.phone.android import Android
from common.errors import ConfigError

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
_RETRY_S = 0.25
_DIAL_TIMEOUT_S = 5.0


def serial_of(port: int) -> str:
    """Returns the serial under which adb lists an emulator whose adbd listens on a port."""
    return f"emulator-{port - 1}"


def _reason(error: OSError) -> str:
    return "it is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)


class PhoneServer:
    """One phone on one port, which the adb server is told about again whenever it forgot it."""

    def __init__(self, android: Android, port: int, adb_port: int):
        """Prepares to serve; `start` begins.

        Args:
          android: The phone.
          port: Where it listens; odd, as on an emulator.
          adb_port: Where the adb server listens.

        Raises:
          ConfigError: The port is not an odd number of a port.
        """
        if not (1024 < port < 65536 and port % 2):
            raise ConfigError(
                f"Port {port} will not do: emulators have odd ports, from 1025 to 65535."
            )
        self.android = android
        self.port = port
        self._adb_port = adb_port
        self._connections: dict[asyncio.Task, Connection] = {}
        self._changed = asyncio.Event()  # set whenever a connection comes up or ends
        self._server: asyncio.Server | None = None
        self._registration: asyncio.Task | None = None

    @property
    def serial(self) -> str:
        return serial_of(self.port)

    @property
    def connected(self) -> bool:
        """Whether an adb server (or a client that speaks the transport itself) is connected."""
        return any(connection.connected.is_set() for connection in self._connections.values())

    async def start(self):
        """Begins to listen and to register; raises ConfigError if the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, HOST, self.port)
        except OSError as error:
            raise ConfigError(
                f"Port {self.port} cannot be used ({_reason(error)}); choose another one."
            ) from error
        self._registration = asyncio.create_task(self._register())

    async def wait_until_connected(self, timeout_s: float) -> bool:
        """Waits until an adb server is connected; False if none was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.connected:
                    await self._change()
        except TimeoutError:
            return False
        return True

    async def close(self):
        """Hangs up, and returns when nothing of it runs any more."""
        if self._server is None or self._registration is None:
            return
        self._server.close()
        self._registration.cancel()
        for connection in self._connections.values():
            connection.close()
        await asyncio.gather(self._registration, *self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        find = functools.partial(services.find, self.android)
        connection = Connection(reader, writer, find, services.banner(self.android))
        serving = asyncio.current_task()
        assert serving is not None
        self._connections[serving] = connection
        watching = asyncio.create_task(self._watch(connection))
        try:
            await connection.serve()
        finally:
            watching.cancel()
            del self._connections[serving]
            self._changed.set()

    async def _watch(self, connection: Connection):
        await connection.connected.wait()
        self._changed.set()

    async def _change(self):
        self._changed.clear()
        await self._changed.wait()

    async def _register(self):
        """Asks the adb server to connect, again whenever no connection is left.

        The server forgets a phone outside its own range of ports when it is restarted.
        """
        while True:
            while self.connected:
                await self._change()
            try:
                await asyncio.wait_for(self._ask_server(), _DIAL_TIMEOUT_S)
            except (OSError, TimeoutError) as error:
                logger.debug("adb server at port %d: %s.", self._adb_port, error)
            if not await self.wait_until_connected(_RETRY_S):
                await asyncio.sleep(_RETRY_S)

    async def _ask_server(self):
        """Sends host:emulator:PORT, which has no answer: the server hangs up, and dials us."""
        reader, writer = await asyncio.open_connection(HOST, self._adb_port)
        try:
            request = f"host:emulator:{self.port}"
            writer.write(f"{len(request):04x}{request}".encode())
            await writer.drain()
            await reader.read()
        finally:
            writer.close()
