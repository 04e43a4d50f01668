"""A phone for each `--emulator` value: one that runs already, or one that is started for it."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Self

from actors.device.adb import AdbDevice, connect
from actors.device.server import DEFAULT_PORT
from common import ports
from common.errors import DeviceError
from common.guard import guarded

SIMULATED = "phone"  # the value of --emulator that stands for a simulated phone of one's own
_LAUNCHER = pathlib.Path(__file__).resolve().parents[2] / "launch" / "phone.py"
_TRIES = 8
_GRACE_S = 1.0


@contextlib.contextmanager
def opened(
    emulator: str, adb_port: int = DEFAULT_PORT, ready_timeout_s: float = 60.0
) -> Iterator[AdbDevice]:
    """Yields the phone, ready to be used, and ends it afterwards if it was started here.

    Raises:
      ConfigError: There is no such phone.
      DeviceError: It does not become ready.
    """
    with contextlib.ExitStack() as stack:
        if emulator == SIMULATED:
            device = stack.enter_context(SimulatedPhone(adb_port)).device
        else:
            device = connect(emulator, adb_port)
        device.wait_ready(ready_timeout_s)
        yield device


class SimulatedPhone:
    """A simulated phone in a process of its own, which also ends when this process does.

    Attributes:
      device: The phone, as the adb server shows it.
      pid: Its process.
    """

    def __init__(self, adb_port: int = DEFAULT_PORT, start_timeout_s: float = 30.0):
        """Starts it; a port that another process takes in the meantime costs another try.

        Raises:
          DeviceError: It does not come up.
          ConfigError: There is no adb server and none can be started, or no port is free.
        """
        deadline = time.monotonic() + start_timeout_s
        for _ in range(_TRIES):
            port = ports.phone_port()
            self.device = AdbDevice(f"emulator-{port - 1}", port=adb_port)
            self.device.server.ensure()
            self._process = _spawn(port, adb_port)
            self.pid = self._process.pid
            try:
                if self._comes_up(deadline):
                    return
            except BaseException:
                self.close()
                raise
        raise DeviceError(f"Simulated phones end at once, with exit code {self._process.poll()}.")

    def _comes_up(self, deadline: float) -> bool:
        """Waits until the adb server lists it; False if its process ended."""
        while self._process.poll() is None:
            if self.device.server.devices().get(self.device.serial) == "device":
                return True
            if time.monotonic() > deadline:
                raise DeviceError(f"{self.device.serial} does not come up.")
            time.sleep(0.05)
        return False

    def close(self) -> None:
        """Ends the process, gently for a second and then not."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _spawn(port: int, adb_port: int) -> subprocess.Popen[bytes]:
    """Starts a phone whose process dies with this one."""
    command = [sys.executable, str(_LAUNCHER), "--port", str(port), "--adb-port", str(adb_port)]
    return subprocess.Popen(guarded(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
