"""Serves simulated phones to adb: one TCP port each, registered with the adb server."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import socket
from collections.abc import Coroutine

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


def _hang_up(host: socket.socket, serving: asyncio.Task[None]):
    host.close()


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
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._changed = asyncio.Event()  # set whenever a connection comes up or ends

    @property
    def serial(self) -> str:
        return serial_of(self.port)

    @property
    def connected(self) -> bool:
        """Whether an adb server (or a client that speaks the transport itself) is connected."""
        return any(connection.connected.is_set() for connection in self._connections)

    async def start(self):
        """Begins to listen and to register; raises ConfigError if the port is taken."""
        try:
            self._listener = socket.create_server((HOST, self.port))
        except OSError as error:
            raise ConfigError(
                f"Port {self.port} cannot be used ({_reason(error)}); choose another one."
            ) from error
        self._listener.setblocking(False)
        self._spawn(self._accept(self._listener))
        self._spawn(self._register())

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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket):
        """Serves whoever connects. asyncio's own server complains when it is closed meanwhile."""
        while True:
            try:
                host, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:  # too many open files, or it is gone already
                logger.warning("%s accepted no connection: %s.", self.serial, error)
                await asyncio.sleep(_RETRY_S)
            else:
                # Without it an answer of two packets waits 40 ms for the other side's delayed ACK.
                host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                serving = self._spawn(self._serve(host))
                serving.add_done_callback(functools.partial(_hang_up, host))  # if it never began

    async def _serve(self, host: socket.socket):
        reader, writer = await asyncio.open_connection(sock=host)
        find = functools.partial(services.find, self.android)
        banner = services.banner(self.android)
        connection = Connection(reader, writer, find, banner, self._greets)
        self._connections.add(connection)
        watching = asyncio.create_task(self._watch(connection))
        try:
            await connection.serve()
        finally:
            watching.cancel()
            self._connections.discard(connection)
            self._changed.set()

    def _greets(self) -> str:
        rates = self.android.faults.rates
        return next((state for state in ("offline", "unauthorized") if state in rates), "device")

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
                async with asyncio.timeout(_DIAL_TIMEOUT_S):
                    await self._ask_server()
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
