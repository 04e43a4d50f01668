"""Phones that are programs on this machine, started and restarted by their owner."""

from __future__ import annotations

import abc
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import IO, Self

from actors.device import health
from actors.device.adb import AdbDevice
from actors.device.causes import Cause
from actors.device.server import DEFAULT_PORT, AdbServer
from common import ports
from common.errors import ConfigError, DeviceError
from common.guard import guarded

PORT_TRIES = 8
GRACE_S = 1.0
_LOG_BYTES = 2000
_POLL_S = 0.05


def nothing() -> None:
    """What to do while waiting, if there is nothing to do."""


def revive(server: AdbServer) -> None:
    """Starts an adb server that was there before, if it is gone; DeviceError if that fails."""
    try:
        server.ensure()
    except ConfigError as error:
        raise DeviceError(str(error), Cause.NO_SERVER) from error


class ProgramPhone(abc.ABC):
    """A phone in a process of its own, which also ends when this process does.

    It is not started before `recover`.

    Attributes:
      device: The phone, as the adb server shows it.
      restores: Whether `restore` brings back a state of old.
      starts: How often its program was started.
      pid: Its process, of the latest start.
    """

    restores = False

    def __init__(self, adb_port: int = DEFAULT_PORT, ready_timeout_s: float = 60.0):
        self._adb_port = adb_port
        self._ready_timeout_s = ready_timeout_s
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None  # what the program prints
        self.device = AdbDevice("emulator-?", port=adb_port)
        self.starts = 0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @abc.abstractmethod
    def _command(self, port: int) -> tuple[list[str], Mapping[str, str]]:
        """Returns what starts it with its adbd on this port, and variables for its environment."""

    def restore(self, on_wait: Callable[[], None] = nothing) -> None:
        """Brings the state of old back between two episodes, where `restores` says so."""
        del on_wait

    def recover(self, hard: bool = False, on_wait: Callable[[], None] = nothing) -> None:
        """Makes it ready, starting its program if that does not run.

        Args:
          hard: Start the program anew in any case.
          on_wait: Called again and again while this waits.

        Raises:
          DeviceError: It does not get ready; another try may do.
          ConfigError: No try will do.
        """
        if self.starts:
            revive(self.device.server)
        else:
            self.device.server.ensure()
        if hard or self._exited():
            self._start(on_wait)
        elif self.device.server.devices().get(self.device.serial) is None:
            self.device.server.register(self._port)  # the server is new and has not heard of it
        self._wait_ready(on_wait)

    def _wait_ready(self, on_wait: Callable[[], None]) -> None:
        def look() -> None:
            on_wait()
            if self._exited():
                raise self._ended()

        health.wait_ready(self.device, self._ready_timeout_s, on_wait=look)

    def _start(self, on_wait: Callable[[], None]) -> None:
        """Starts the program and waits until the adb server lists it.

        A port that somebody else takes in the meantime costs another try.
        """
        deadline = time.monotonic() + self._ready_timeout_s
        for _ in range(PORT_TRIES):
            self._port = ports.emulator_port()
            self.device.serial = f"emulator-{self._port - 1}"
            command, environment = self._command(self._port)
            self.close()
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            self.starts += 1
            self._process = subprocess.Popen(
                guarded(command),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
            while not self._exited():
                if self.device.server.devices().get(self.device.serial) is not None:
                    return
                if time.monotonic() > deadline:
                    self.close()
                    raise DeviceError(f"{self.device.serial} does not come up", Cause.EMULATOR)
                on_wait()
                time.sleep(_POLL_S)
            if ports.is_free(self._port) and ports.is_free(self._port - 1):
                raise self._ended()
        raise DeviceError(f"No port stayed free. {self._ended()}", Cause.EMULATOR)

    def _exited(self) -> bool:
        """Whether the program does not run; it is not reaped, so that its group stays its own."""
        process = self._process
        if process is None or process.returncode is not None:
            return True
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _ended(self) -> DeviceError:
        """Returns what to say of a program that ended by itself."""
        code = _bury(self._process) if self._process else 0
        how = f"exit code {code}"
        if code < 0:
            how = f"signal {-code} ({signal.strsignal(-code)})"
        said = ""
        if self._log is not None:
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - _LOG_BYTES))
            said = " | ".join(self._log.read().decode(errors="replace").splitlines()[-5:])
        return DeviceError(
            f"The program of {self.device.serial} ended with {how}: {said}", Cause.EMULATOR
        )

    def close(self) -> None:
        """Ends the program and whatever it started, gently for a second and then not."""
        process, log = self._process, self._log
        if process is not None:
            if not self._exited():
                os.kill(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S
            while not self._exited() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            _bury(process)
        if log is not None:
            log.close()
        self._process = self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bury(process: subprocess.Popen[bytes]) -> int:
    """Kills what is left of a program's group and returns its exit code."""
    if process.returncode is None:  # else the number may be somebody else's by now
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
