"""Android's emulator, started from an AVD through its command line and driven by its console."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Mapping

from actors.device import console
from actors.device.causes import Cause
from actors.device.program import ProgramPhone, nothing
from actors.device.server import DEFAULT_PORT
from common.errors import ConfigError, DeviceError

SNAPSHOT_S = 60.0  # to load one; 3 s is usual
LIST_S = 20.0
RELAUNCH_EVERY = 200  # episodes; emulators grow by the hour
# No window, no sound, nothing written to the AVD: so several may run on the same one.
FLAGS = ("-read-only", "-no-window", "-no-audio", "-no-boot-anim", "-no-snapshot-save")


@dataclasses.dataclass(frozen=True)
class AvdOptions:
    """How emulators are run.

    Attributes:
      program: The emulator program; looked for on PATH and in the SDK if it is a bare name.
      snapshot: What is loaded at the start and between episodes; "" for none, a cold boot.
      relaunch_every: Episodes after which the program is started anew; 0 for never.
      ready_timeout_s: How long a start may take, from the program to the first frame.
      flags: More flags for the program, such as "-gpu swiftshader_indirect".
    """

    program: str = "emulator"
    snapshot: str = ""
    relaunch_every: int = RELAUNCH_EVERY
    ready_timeout_s: float = 240.0
    flags: tuple[str, ...] = ()


class Avd(ProgramPhone):
    """An emulator of ours."""

    def __init__(self, name: str, options: AvdOptions, adb_port: int = DEFAULT_PORT):
        """Looks at program and AVD; `recover` starts it.

        Raises:
          ConfigError: There is no such program, or it knows no such AVD.
        """
        super().__init__(adb_port, options.ready_timeout_s)
        self._name = name
        self._options = options
        self._program = find(options.program)
        self._episodes = 0
        known = avds(self._program)
        if name not in known:
            raise ConfigError(
                f"The emulator knows no AVD {name!r}; `avdmanager create avd` makes one. "
                f"It knows: {', '.join(known) or 'none'}."
            )

    @property
    def restores(self) -> bool:  # type: ignore[override]
        return bool(self._options.snapshot)

    def _command(self, port: int) -> tuple[list[str], Mapping[str, str]]:
        snapshot = self._options.snapshot
        command = [self._program, "-avd", self._name, "-ports", f"{port - 1},{port}", *FLAGS]
        command += ["-snapshot", snapshot] if snapshot else ["-no-snapshot-load"]
        return [*command, *self._options.flags], {"ANDROID_ADB_SERVER_PORT": str(self._adb_port)}

    def recover(self, hard: bool = False, on_wait: Callable[[], None] = nothing) -> None:
        """As with any program; a start also makes sure that the snapshot is there.

        Without it the program boots cold and says so in its log alone.
        """
        starts = self.starts
        super().recover(hard, on_wait)
        if self.starts > starts:
            self._episodes = 0
            snapshot = self._options.snapshot
            if snapshot and snapshot not in self._console("avd snapshot list").split():
                raise ConfigError(
                    f"The AVD {self._name!r} has no snapshot {snapshot!r}. Start it with a window, "
                    "make everything ready, and run "
                    f"`adb emu avd snapshot save {snapshot}`."
                )

    def restore(self, on_wait: Callable[[], None] = nothing) -> None:
        """Loads the snapshot, or starts the program anew if it has run for long enough.

        Raises:
          DeviceError: The snapshot does not load, or the phone is not ready afterwards.
        """
        self._episodes += 1
        every = self._options.relaunch_every
        if every and self._episodes > every:
            self.recover(hard=True, on_wait=on_wait)
        elif self._options.snapshot and self._episodes > 1:  # it starts with the first
            try:
                self._console(f"avd snapshot load {self._options.snapshot}", SNAPSHOT_S)
            except DeviceError as error:
                raise DeviceError(f"{self.device.serial}: {error}", Cause.SNAPSHOT) from error
            self._wait_ready(on_wait)

    def _console(self, line: str, timeout_s: float = 10.0) -> str:
        return console.command(self._port - 1, line, timeout_s)


def find(program: str) -> str:
    """Returns the path of the emulator program.

    Raises:
      ConfigError: There is none.
    """
    folders = [os.environ.get(name) for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT")]
    tried = [program, *(str(pathlib.Path(f) / "emulator" / program) for f in folders if f)]
    path = next(filter(None, map(shutil.which, tried)), None)
    if path is None:
        raise ConfigError(
            f"There is no emulator program {program!r}: install it with "
            "`sdkmanager emulator` and set ANDROID_HOME, or give its path."
        )
    return path


def avds(program: str) -> list[str]:
    """Returns the names of the AVDs that the emulator program knows.

    Raises:
      ConfigError: It does not run.
    """
    try:
        listed = subprocess.run(
            [program, "-list-avds"], capture_output=True, text=True, timeout=LIST_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program} -list-avds does not work: {error}") from error
    # Lines of its log come in between.
    return [line.strip() for line in listed.stdout.splitlines() if line and "|" not in line]
