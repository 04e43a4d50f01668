"""A phone for each `--emulator` value: one that runs already, or one that is started for it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from actors.device.adb import AdbDevice, connect
from actors.device.server import DEFAULT_PORT
from common.errors import ConfigError, DeviceError

SIMULATED = "phone"  # the value of --emulator that stands for a simulated phone of one's own
_LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
_PROBED_PORTS = range(5554, 5587)  # every adb server looks for emulators here by itself
_PORT_TRIES = 64
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
        port = _free_odd_port()
        self.device = AdbDevice(f"emulator-{port - 1}", port=adb_port)
        self.device.server.ensure()
        phone = [sys.executable, str(_LAUNCH / "phone.py")]
        phone += ["--port", str(port), "--adb-port", str(adb_port)]
        guard = [sys.executable, "-I", "-S", str(_LAUNCH / "guard.py"), str(os.getpid())]
        self._process = subprocess.Popen(
            guard + phone, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.pid = self._process.pid
        try:
            self._wait(start_timeout_s)
        except BaseException:
            self.close()
            raise

    def _wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.device.server.devices().get(self.device.serial) != "device":
            code = self._process.poll()
            if code is not None:
                raise DeviceError(f"The simulated phone ended at once, with exit code {code}.")
            if time.monotonic() > deadline:
                raise DeviceError(f"{self.device.serial} did not come up in {timeout_s:g} s.")
            time.sleep(0.05)

    def close(self) -> None:
        """Ends the process, gently for a second and then not."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> SimulatedPhone:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_odd_port() -> int:
    """Returns a port that the system just had free; odd, as the adb server wants it."""
    for _ in range(_PORT_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port % 2 and port not in _PROBED_PORTS:
            return port
    raise ConfigError("The system gives no free odd port for a simulated phone.")
