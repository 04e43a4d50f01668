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
from actors.phone.faults import Faults
from actors.phone.phone import Phone
from actors.phone.server import PhoneServer, serial_of
from common.errors import ConfigError, DeviceError
from launch import environment

_READY_TIMEOUT_S = 30.0
_POLL_S = 0.05


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
    """How long gestures, apps and pages take, in terms of a real phone; 0 is at once."""
    faults: str = ""
    """What goes wrong and how often, as in "png_cut=0.02,anr=0.01"."""


def main(argv: list[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv, description=Args.__doc__)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        adb_port = environment.adb_port(args.adb_port)
        servers = _servers(args, adb_port)
        AdbServer(port=adb_port).ensure()  # out here, where a signal ends the wait at once
        asyncio.run(_serve(servers, adb_port))
    except ConfigError as error:
        print(f"phone: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before there was anything to end
        return 130
    return 0


def _servers(args: Args, adb_port: int) -> list[PhoneServer]:
    _check(args)
    ports = range(args.port, args.port + 2 * args.count, 2)
    return [PhoneServer(_android(args, i, port), port, adb_port) for i, port in enumerate(ports)]


async def _serve(servers: list[PhoneServer], adb_port: int):
    """Runs the phones until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        for server in servers:
            await server.start()
        announced = asyncio.create_task(_announce(servers, adb_port))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((announced, stopped), return_when=asyncio.FIRST_COMPLETED)
        if announced.done():
            announced.result()  # raises what it raised
            await stopped
    finally:
        for server in servers:
            await server.close()


async def _announce(servers: list[PhoneServer], adb_port: int):
    """Prints one line when adb lists all of the phones."""
    serials = [server.serial for server in servers]
    adb = AdbServer(port=adb_port)
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            while not set(serials) <= await asyncio.to_thread(_ready, adb):
                await asyncio.sleep(_POLL_S)
    except TimeoutError as error:
        raise ConfigError(
            f"The adb server at port {adb_port} did not connect to all phones within "
            f"{_READY_TIMEOUT_S:.0f} s."
        ) from error
    print("ready", *serials, flush=True)


def _ready(adb: AdbServer) -> set[str]:
    try:
        return {serial for serial, state in adb.devices().items() if state == "device"}
    except DeviceError:  # it is being restarted
        return set()


def _check(args: Args):
    if not 1 <= args.count <= 64:
        raise ConfigError("--count must be from 1 to 64.")
    if not (120 <= args.width <= 4096 and 120 <= args.height <= 4096):
        raise ConfigError("--width and --height must be from 120 to 4096.")
    if not 0 <= args.time_factor <= 100:
        raise ConfigError("--time-factor must be from 0 to 100.")
    try:
        Faults(args.faults)
    except ValueError as error:
        raise ConfigError(f"--faults {args.faults!r}: {error}.") from error


def _android(args: Args, index: int, port: int) -> Android:
    phone = Phone(args.seed + index, args.width, args.height)
    faults = Faults(args.faults, args.seed + index)
    return Android(phone, serial_of(port), args.time_factor, faults)


if __name__ == "__main__":
    sys.exit(main())
