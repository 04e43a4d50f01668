"""Files that outlive a process that is killed, and folders that one process has for itself."""

from __future__ import annotations

import fcntl
import os
import pathlib
from typing import BinaryIO


def write_durably(path: pathlib.Path, data: bytes) -> None:
    """Makes a file that is there whole or not at all, whatever ends this process or the machine."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Makes the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(folder: pathlib.Path) -> BinaryIO | None:
    """Locks a folder for this process until the returned file is closed; None if another has it.

    The kernel frees it when the process dies, however it dies.
    """
    file = (folder / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
