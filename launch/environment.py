"""What several launchers read of the environment."""

from __future__ import annotations

import os
import pathlib

from common.errors import ConfigError

ADB_PORT = "ANDROID_ADB_SERVER_PORT"  # adb's own name for it


def adb_port(flag: int | None) -> int:
    """Returns the port of the adb server: that of --adb-port, or the environment's, or adb's.

    Raises:
      ConfigError: One of them is no port.
    """
    port = _port(f"${ADB_PORT}", os.environ.get(ADB_PORT, "5037"))
    return port if flag is None else _port("--adb-port", str(flag))


def cache_folder() -> pathlib.Path:
    """Returns where what can be fetched again is kept."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "distrl"


def state_folder() -> pathlib.Path:
    """Returns where what must not be lost is kept."""
    return pathlib.Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser() / "distrl"


def _port(name: str, text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 65536):
        raise ConfigError(f"{name} must be between 1 and 65535, not {text}.")
    return int(text)
