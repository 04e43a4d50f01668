"""Android's emulator for tests: a program that speaks its flags and its console."""

import json
import pathlib
import sys

import pytest

from actors.device.avd import Avd, AvdOptions

PROGRAM = pathlib.Path(__file__).parents[1] / "emulator_program.py"


class StandIn:
    """The stand-in program and what is known of it."""

    def __init__(self, folder: pathlib.Path, adb_port: int, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("STAND_IN", str(folder))
        self._folder = folder
        self._adb_port = adb_port
        self.program = folder / "emulator"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
        self.program.chmod(0o755)

    def avd(self, name: str = "test", **options) -> Avd:
        options = {"snapshot": "ready", "ready_timeout_s": 20.0, **options}
        return Avd(name, AvdOptions(str(self.program), **options), self._adb_port)

    def goes_wrong(self, mode: str) -> None:
        (self._folder / "mode").write_text(mode)

    def starts(self) -> list[dict]:
        return [json.loads(line) for line in (self._folder / "starts").read_text().splitlines()]
