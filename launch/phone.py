"""Serves simulated phones until it is interrupted: python launch/phone.py --port 6555."""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import asyncio
import dataclasses
import logging
import signal

import tyro

from actors.device.server import AdbServer
from actors.phone.android import Android
from actors.phone.phone import Phone
from actors.phone.server import PhoneServer, serial_of
from common.errors import ConfigError
from launch import environment

_READY_TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class Args:
    """Simulated phones behind the adb server; serials are emulator-(PORT-1)."""

    port: int = 6555
    """Of the first phone, odd as an emulator's; the others follow in steps of 2."""
    count: int = 1
    """How many phones."""
    seed: int = 0
    """Layout of the first phone; the others count up."""
    adb_port: int | None = None
    """Of the adb server; by default $ANDROID_ADB_SERVER_PORT, or 5037."""
    width: int = 360
    """Of the screen, in pixels."""
    height: int = 640
    """Of the screen, in pixels."""
    time_factor: float = 0.0
    """How long gestures take, in terms of what was asked; 0 is at once."""


def main(argv: list[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv, description=Args.__doc__)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(_serve(args, environment.adb_port(args.adb_port)))
    except ConfigError as error:
        print(f"phone: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(args: Args, adb_port: int):
    """Runs the phones until SIGINT or SIGTERM."""
    _check(args)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ports = range(args.port, args.port + 2 * args.count, 2)
    servers = [PhoneServer(_android(args, i, port), port, adb_port) for i, port in enumerate(ports)]
    try:
        for server in servers:
            await server.start()
        await asyncio.to_thread(AdbServer(port=adb_port).ensure)
        await _announce(servers, adb_port, stop)
        await stop.wait()
    finally:
        for server in servers:
            await server.close()


def _check(args: Args):
    if not 1 <= args.count <= 64:
        raise ConfigError("--count must be from 1 to 64.")
    if not (120 <= args.width <= 4096 and 120 <= args.height <= 4096):
        raise ConfigError("--width and --height must be from 120 to 4096.")
    if not 0 <= args.time_factor <= 100:
        raise ConfigError("--time-factor must be from 0 to 100.")


def _android(args: Args, index: int, port: int) -> Android:
    phone = Phone(args.seed + index, args.width, args.height)
    return Android(phone, serial_of(port), args.time_factor)


async def _announce(servers: list[PhoneServer], adb_port: int, stop: asyncio.Event):
    """Prints one line when the adb server is connected to all of the phones."""
    waits = (server.wait_until_connected(_READY_TIMEOUT_S) for server in servers)
    ready = asyncio.gather(*waits)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        ready.cancel()
        return
    stopped.cancel()
    if not all(ready.result()):
        raise ConfigError(
            f"The server at port {adb_port} did not connect within {_READY_TIMEOUT_S:.0f} s;"
            " is it adb's?"
        )
    print("ready", *(server.serial for server in servers), flush=True)


if __name__ == "__main__":
    sys.exit(main())
