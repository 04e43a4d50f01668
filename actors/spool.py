"""What the learner has not acknowledged yet, on the actor's disk: an outage costs no episode.

A folder with a file for each episode, `<number>.episode`, numbered as they were made. It outlives
the actor, however that ends, and the next one of the same name delivers what is left. (Files are
not synced one by one: a machine that loses its power may lose the newest seconds.) What the learner
refuses for good is kept for people in `dead/`, beside its reason.
"""

from __future__ import annotations

import errno
import logging
import pathlib
from collections.abc import Sequence
from typing import Self

from common import errors, files, messages, record

logger = logging.getLogger(__name__)

CAPACITY_BYTES = 1024**3
MAX_DEAD = 100  # files; of more, the oldest go
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Spool:
    """Episodes as files, oldest first; one process owns a folder."""

    def __init__(self, folder: pathlib.Path, capacity_bytes: int = CAPACITY_BYTES):
        """Opens a spool, new or as an earlier actor left it.

        Raises:
          ConfigError: The folder can't be used, or another actor uses it.
        """
        self._folder, self._capacity_bytes = folder, capacity_bytes
        self._dead = folder / "dead"
        try:
            self._dead.mkdir(parents=True, exist_ok=True)
            lock = files.lock(folder)
        except OSError as error:
            raise errors.ConfigError(
                f"The spool {folder} can't be used: {error.strerror}. Name another with --spool."
            ) from error
        if lock is None:
            raise errors.ConfigError(
                f"Another actor uses the spool {folder}: give each its own --name, or --spool."
            )
        self._lock = lock
        for unfinished in folder.glob("*.tmp"):
            unfinished.unlink()  # of an actor that was killed before the episode was its
        self._sizes = {
            int(path.stem): path.stat().st_size for path in sorted(folder.glob("*.episode"))
        }
        self._next = max(self._sizes, default=-1) + 1
        self.size_bytes = sum(self._sizes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the folder to the next actor."""
        self._lock.close()

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def numbers(self) -> list[int]:
        """The numbers of all episodes, oldest first."""
        return list(self._sizes)

    def size_of(self, number: int) -> int:
        """Returns an episode's size in bytes."""
        return self._sizes[number]

    def put(self, frames: Sequence[bytes]) -> bool:
        """Keeps an episode's message; False if there is no room, in the spool or on the disk."""
        data = record.pack(self._next, frames)
        if self._sizes and self.size_bytes + len(data) > self._capacity_bytes:
            return False
        path = self._path(self._next)
        unfinished = path.with_suffix(".tmp")
        try:
            unfinished.write_bytes(data)
            unfinished.rename(path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            if error.errno in NO_ROOM:
                return False
            raise errors.ConfigError(
                f"The spool {self._folder} can't be written: {error.strerror}."
            ) from error
        self._sizes[self._next] = len(data)
        self.size_bytes += len(data)
        self._next += 1
        return True

    def load(self, number: int) -> list[bytes] | None:
        """Returns the two frames; a file that is damaged goes to `dead/`, for None."""
        try:
            with self._path(number).open("rb") as file:
                found = record.read(file)
                if found is None:
                    raise record.DamagedError
                messages.unpack(found.frames)
        except (FileNotFoundError, record.DamagedError, errors.WireError) as error:
            self.bury(number, f"The file is damaged. {error!r}")
            return None
        return found.frames

    def remove(self, number: int) -> None:
        """Forgets an episode that was delivered."""
        self.size_bytes -= self._sizes.pop(number)
        self._path(number).unlink(missing_ok=True)

    def bury(self, number: int, reason: str) -> None:
        """Moves an episode that will never be delivered out of the way, with the reason."""
        self.size_bytes -= self._sizes.pop(number)
        # A number is used again once the spool was empty.
        taken = [int(path.stem) for path in self._dead.glob("*.episode")]
        grave = self._dead / f"{max([number - 1, *taken]) + 1:012d}.episode"
        try:
            self._path(number).rename(grave)
            grave.with_suffix(".txt").write_text(reason + "\n", encoding="utf-8")
        except OSError as error:
            logger.error("Episode %d can't be moved to %s: %s", number, self._dead, error)
        for old in sorted(taken)[: max(len(taken) + 1 - MAX_DEAD, 0)]:
            for suffix in (".episode", ".txt"):
                (self._dead / f"{old:012d}{suffix}").unlink(missing_ok=True)

    def _path(self, number: int) -> pathlib.Path:
        return self._folder / f"{number:012d}.episode"
