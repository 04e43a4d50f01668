"""The write-ahead log of episodes: what was acknowledged is on the disk, in order, once each.

A folder of segments, `<number of the first record>.journal`. A segment begins with a record of the
ledger, all ids delivered before it, and then has an episode a record; so any of the others can be
deleted without forgetting what has been delivered. One process writes (`Journal`); any may read
(`Reader`) what the writer says is committed.
"""

from __future__ import annotations

import bisect
import errno
import logging
import os
import pathlib
import threading
from collections.abc import Sequence
from typing import BinaryIO, Self

import numpy as np

from common import errors, files, messages, record
from learner.ledger import EpisodeId, Ledger

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 1024 * 1024
MOST_PARTS = 1024  # of one write, IOV_MAX
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SUFFIX = ".journal"


class JournalFullError(errors.DistRLError):
    """The disk has no room: nothing of the group was kept, and a later one may be."""


class Journal:
    """Appends episodes in groups, and deletes the segments that nobody needs any more.

    `append` and `commit` belong to one thread; `retain` may be called from another.
    """

    def __init__(self, folder: pathlib.Path, segment_bytes: int = SEGMENT_BYTES, position: int = 0):
        """Opens a journal, new or as a process that was killed left it: a torn end is cut off.

        Args:
          folder: Of the segments.
          segment_bytes: At this size a segment is full.
          position: What the learner has read. Where less than that is left, as after someone
            deleted segments, numbers go on from here: it would not read them again.

        Raises:
          ConfigError: Another process writes it, or it is damaged.
        """
        self._folder, self._segment_bytes = folder, segment_bytes
        folder.mkdir(parents=True, exist_ok=True)
        lock = files.lock(folder)
        if lock is None:
            raise errors.ConfigError(
                f"Another learner writes {folder}: stop it, or give another --workdir."
            )
        self._lock_file, self._lock = lock, threading.Lock()
        self._group: dict[EpisodeId, Sequence[bytes]] = {}
        self.end = 0  # records ever committed: the number of the next one
        self.ledger = Ledger()
        for unfinished in folder.glob("*.tmp"):
            unfinished.unlink()
        self._firsts = _firsts(folder)
        if self._firsts:
            self._recover()
        else:
            self.end = position
            self._file = self._begin_segment()
        if self.end < position:
            logger.error("%s has lost its records %d to %d.", folder, self.end, position - 1)
            self._file.close()
            self.end = position
            self._file = self._begin_segment()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the folder; what was appended and not committed is forgotten."""
        self._file.close()
        self._lock_file.close()

    def __contains__(self, episode: EpisodeId) -> bool:
        """Whether an episode was appended, committed or not."""
        return episode in self._group or episode in self.ledger

    def append(self, episode: EpisodeId, frames: Sequence[bytes]) -> None:
        """Adds a new episode's message to the group that the next `commit` writes."""
        self._group[episode] = frames

    def commit(self) -> int:
        """Writes the group so that it outlives this machine's end; returns its size.

        Raises:
          JournalFullError: There is no room.
          OSError: The disk failed; what is on it is found out by opening the journal again.
        """
        group, self._group = self._group, {}
        if not group:
            return 0
        parts: list[bytes] = []
        for number, frames in enumerate(group.values(), self.end):
            parts += record.parts(number, frames)
        with self._lock:
            try:
                if self._size >= self._segment_bytes:
                    full, self._file = self._file, self._begin_segment()
                    full.close()
                _write(self._file, parts)
                os.fdatasync(self._file.fileno())
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._cut(self._size)
                raise JournalFullError(f"{self._folder} has no room: {error.strerror}.") from error
            self._size += sum(map(len, parts))
        for episode in group:
            self.ledger.add(episode)
        self.end += len(group)
        return len(group)

    def retain(self, live: np.ndarray, upto: int) -> int:
        """Deletes the segments that hold nothing but records below `upto` that are not live.

        Args:
          live: Numbers of records that are still needed, ascending, [N] int64.
          upto: Records from here on are needed, too.

        Returns:
          How many were deleted.
        """
        with self._lock:
            dead = [
                first
                for first, after in zip(self._firsts, self._firsts[1:], strict=False)
                if after <= upto and np.searchsorted(live, first) == np.searchsorted(live, after)
            ]
            for first in dead:
                _path(self._folder, first).unlink()
                self._firsts.remove(first)
        if dead:
            files.sync_folder(self._folder)
        return len(dead)

    def _begin_segment(self) -> BinaryIO:
        path = _path(self._folder, self.end)
        header = record.pack(self.end, [b"", self.ledger.to_bytes()])
        files.write_durably(path, header)
        self._firsts.append(self.end)
        self._size = len(header)
        return path.open("ab", buffering=0)

    def _recover(self) -> None:
        """Reads the newest segment: its ledger, what came after it, and where it ends."""
        path = _path(self._folder, self._firsts[-1])
        self._size, self.end = 0, self._firsts[-1]
        with path.open("rb") as file:
            try:
                header = record.read(file)
                if header is None:
                    raise record.DamagedError
                self.ledger = Ledger.from_bytes(header.frames[1])
                self._size = file.tell()
                while (found := record.read(file)) is not None:
                    self.ledger.add(EpisodeId.of(messages.unpack(found.frames)[0]))
                    self.end = found.number + 1
                    self._size = file.tell()
            except (record.DamagedError, errors.WireError) as error:
                if not self._size or isinstance(error, errors.WireError):
                    raise damaged(path, self._size) from error
        self._file = path.open("ab", buffering=0)
        if torn := path.stat().st_size - self._size:
            logger.warning(
                "Cut %d bytes off the end of %s: they were never acknowledged.", torn, path
            )
            self._cut(self._size)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._file.fileno(), size)
        os.fsync(self._file.fileno())


class Reader:
    """Reads committed records in order."""

    def __init__(self, folder: pathlib.Path, position: int = 0):
        """Begins at the record of that number."""
        self.position = position
        self._folder = folder
        self._file: BinaryIO | None = None
        self._first = -1  # of the open segment

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> record.Record | None:
        """Returns the record at the position, or the next one that was not deleted.

        None at the end of the journal, which may be beyond what is committed: the caller asks for
        no more than that.

        Raises:
          ConfigError: The file is damaged.
        """
        while self._file is not None or self._open():
            assert self._file is not None
            begin = self._file.tell()
            try:
                found = record.read(self._file)
            except record.DamagedError as error:
                raise damaged(_path(self._folder, self._first), begin) from error
            if found is None:
                self.close()
            elif begin and found.number >= self.position:  # the one at the beginning is the ledger
                self.position = found.number + 1
                return found
        return None

    def _open(self) -> bool:
        """Opens the segment of the position, or the first one after it; False if there is none."""
        firsts = _firsts(self._folder)
        at = max(bisect.bisect_right(firsts, self.position) - 1, 0)
        if at < len(firsts) and firsts[at] <= self._first:  # it was read to its end
            at = bisect.bisect_right(firsts, self._first)
        if at == len(firsts):
            return False
        self._first = firsts[at]
        # Unbuffered: what was read ahead of the commit might be cut off and written anew.
        self._file = _path(self._folder, self._first).open("rb", buffering=0)
        return True


def damaged(path: pathlib.Path, offset: int) -> errors.ConfigError:
    return errors.ConfigError(
        f"{path} is damaged at byte {offset}. Restore it from a copy, or delete it to go on "
        "without its episodes."
    )


def _firsts(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob(f"*{SUFFIX}"))


def _path(folder: pathlib.Path, first: int) -> pathlib.Path:
    return folder / f"{first:012d}{SUFFIX}"


def _write(file: BinaryIO, parts: Sequence[bytes]) -> None:
    """Writes all of it: a call may take a part, as when the disk becomes full."""
    views = [memoryview(part) for part in parts if part]
    while views:
        written = os.writev(file.fileno(), views[:MOST_PARTS])
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]
