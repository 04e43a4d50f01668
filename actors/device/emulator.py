"""A phone for each `--emulator` value: one that runs already, or one that is started for it."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from actors.device import health
from actors.device.adb import AdbDevice, connect
from actors.device.avd import Avd, AvdOptions
from actors.device.program import ProgramPhone, nothing, revive
from actors.device.server import DEFAULT_PORT

SIMULATED = "phone"  # the value of --emulator that stands for a simulated phone of one's own
AVD = "avd:"  # what comes before the name of an AVD that is to be started
_LAUNCHER = pathlib.Path(__file__).resolve().parents[2] / "launch" / "phone.py"


class Phone(Protocol):
    """A phone and what its owner can do about it.

    Attributes:
      device: How it is seen and driven.
      restores: Whether `restore` brings back a state of old.
      starts: How often we started it; 0 for one that is not ours to start.
    """

    device: AdbDevice
    starts: int

    @property
    def restores(self) -> bool: ...
    def restore(self, on_wait: Callable[[], None] = nothing, /) -> None: ...
    def recover(self, hard: bool = False, on_wait: Callable[[], None] = nothing) -> None: ...
    def close(self) -> None: ...


class Attached:
    """A phone or emulator that runs already, and goes on when we are done."""

    restores = False
    starts = 0

    def __init__(self, device: AdbDevice, ready_timeout_s: float = 60.0):
        self.device = device
        self._ready_timeout_s = ready_timeout_s

    def restore(self, on_wait: Callable[[], None] = nothing) -> None:
        """It has no state of old."""

    def recover(self, hard: bool = False, on_wait: Callable[[], None] = nothing) -> None:
        """Finds it again and waits until it is ready.

        Args:
          hard: Drop adb's connection to it and make a new one.
          on_wait: Called again and again while this waits.

        Raises:
          DeviceError: It does not get ready.
        """
        server, serial = self.device.server, self.device.serial
        revive(server)
        state = server.devices().get(serial)
        if ":" in serial and (hard or state != "device"):
            server.redial(serial)
        elif state is None and serial.startswith("emulator-"):
            server.register(int(serial.removeprefix("emulator-")) + 1)
        elif hard and state is not None:
            server.reconnect(serial)
        health.wait_ready(self.device, self._ready_timeout_s, on_wait=on_wait)

    def close(self) -> None:
        """It is not ours to end."""


class SimulatedPhone(ProgramPhone):
    """A simulated phone of one's own."""

    def __init__(
        self,
        adb_port: int = DEFAULT_PORT,
        ready_timeout_s: float = 30.0,
        flags: tuple[str, ...] = (),
    ):
        super().__init__(adb_port, ready_timeout_s)
        self._flags = flags

    def _command(self, port: int) -> tuple[list[str], Mapping[str, str]]:
        options = ["--port", str(port), "--adb-port", str(self._adb_port), *self._flags]
        return [sys.executable, str(_LAUNCHER), *options], {}


def find(
    emulator: str,
    adb_port: int = DEFAULT_PORT,
    ready_timeout_s: float = 60.0,
    avd: AvdOptions | None = None,
) -> Phone:
    """Returns the phone that a value of --emulator means; `recover` then makes it ready.

    Raises:
      ConfigError: There is no such phone.
    """
    if emulator == SIMULATED:
        return SimulatedPhone(adb_port)
    if emulator.startswith(AVD):
        return Avd(emulator.removeprefix(AVD), avd or AvdOptions(), adb_port)
    return Attached(connect(emulator, adb_port), ready_timeout_s)


@contextlib.contextmanager
def opened(
    emulator: str, adb_port: int = DEFAULT_PORT, ready_timeout_s: float = 60.0
) -> Iterator[AdbDevice]:
    """Yields the phone, ready to be used, and ends it afterwards if it was started here.

    Raises:
      ConfigError: There is no such phone.
      DeviceError: It does not become ready.
    """
    with contextlib.closing(find(emulator, adb_port, ready_timeout_s)) as phone:
        phone.recover()
        yield phone.device
