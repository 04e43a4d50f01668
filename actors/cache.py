"""Parameters on an actor's host: one folder of immutable files that all its actors map.

A blob is downloaded once, by the actor that has the lock on its part, and goes on where the one
before stopped. Verified, it is written as the policy wants it, cast and with adapters merged, one
leaf at a time; then it is renamed into place. Tensors lie at multiples of 64 bytes, so JAX computes
on the mapped file itself: however many actors there are, the pages are there once, and an actor
lets go of its old parameters only when the new ones are complete on disk.

A file is tensors, a table of them as msgpack, and a footer with a checksum. The crash of a machine
may leave one torn under its final name: what is older than this process is checked before use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import logging
import mmap
import os
import pathlib
import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator

import msgpack
import numpy as np

from common import errors, weights

logger = logging.getLogger(__name__)

LIMIT_BYTES = 8 * 1024**3
STALLED_S = 30.0  # a part that its owner didn't touch for so long is left to it
MAX_BAD_CHUNKS = 8
BLOCK_BYTES = 1024 * 1024

_FOOTER = struct.Struct("<QI4s")  # bytes of the table, CRC-32 of all before the footer, magic
_MAGIC = b"DRL1"


Opened = io.BufferedReader | io.BufferedRandom


class Stored:
    """The parameters in one complete file."""

    def __init__(self, file: Opened, check: bool):
        """Takes over an open file.

        Raises:
          ValueError: It is not as it was written, if that is to be checked.
        """
        self._file = file
        size = os.fstat(file.fileno()).st_size - _FOOTER.size
        if size < 0:
            raise ValueError("it is too short")
        file.seek(size)
        table_bytes, crc, magic = _FOOTER.unpack(file.read())
        if check and (magic != _MAGIC or _crc(file, size) != crc):
            raise ValueError("its checksum is wrong")
        file.seek(size - table_bytes)
        table = msgpack.unpackb(file.read(table_bytes))
        tensors = (weights.Tensor(p, dtype, tuple(shape), at) for p, dtype, shape, at in table)
        self._tensors = {tensor.path: tensor for tensor in tensors}

    def read(self, path: str) -> np.ndarray:
        """Returns a copy of one tensor, which leaves no page of the file behind."""
        return _read(self._file, self._tensors[path])

    def views(self) -> dict[str, np.ndarray]:
        """Maps the file and returns its tensors by path; they outlive its removal."""
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return weights.views(mapped, self._tensors.values())

    def close(self) -> None:
        self._file.close()


class Part:
    """A download that this process alone may write; chunks survive it."""

    def __init__(self, path: pathlib.Path, file: io.BufferedRandom, manifest: weights.Manifest):
        self.manifest = manifest
        self.path = path
        self._file = file
        chunks = range(len(manifest.chunk_sha256))
        there = os.fstat(file.fileno()).st_size > 0
        # chunk -> when to ask for it
        self.missing = {i: 0.0 for i in chunks if not (there and self._holds(i))}
        self._bad_chunks = 0
        if len(self.missing) < len(chunks):
            logger.info("Going on with a download: %d chunks left.", len(self.missing))

    def take(self, index: int, data: bytes) -> None:
        """Keeps a chunk if it is right, and asks again if not.

        Raises:
          WireError: BAD_CHECKSUM after many wrong chunks.
        """
        if index not in self.missing:
            return  # asked for twice
        if weights.verify_chunk(data, index, self.manifest):
            with _worded(self.path.parent):
                self._file.seek(self.manifest.chunk(index).start)
                self._file.write(data)
                self._file.flush()
            del self.missing[index]
            return
        self._bad_chunks += 1
        self.missing[index] = 0.0
        logger.warning("Chunk %d of %s came damaged.", index, self.manifest.version)
        if self._bad_chunks > MAX_BAD_CHUNKS:
            raise errors.WireError("BAD_CHECKSUM", f"{self._bad_chunks} chunks came damaged.")

    def verify(self) -> None:
        """Raises WireError if what is on disk is not what was published."""
        self._file.seek(0)
        if hashlib.file_digest(self._file, "sha256").hexdigest() != self.manifest.sha256:
            self.discard()
            raise errors.WireError("BAD_CHECKSUM", "The parameters are not those of the manifest.")

    def leaves(self, dtype: str | None) -> Iterator[tuple[str, np.ndarray]]:
        """Yields paths and arrays, cast; one leaf is in memory at a time."""
        for tensor in self.manifest.tensors:
            array = _read(self._file, tensor)
            if dtype is not None and tensor.dtype in weights.FLOAT_DTYPES:
                array = array.astype(weights.WIRE_DTYPES[dtype], copy=False)
            yield tensor.path, array

    def discard(self) -> None:
        """Removes it; the download begins anew."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leaves it to whoever goes on."""
        with contextlib.suppress(OSError):  # of a full disk; what is not there is asked for again
            self._file.close()

    def _holds(self, index: int) -> bool:
        place = self.manifest.chunk(index)
        self._file.seek(place.start)
        return weights.verify_chunk(self._file.read(place.stop - place.start), index, self.manifest)


class Cache:
    """The folder of parameters of this host's actors."""

    def __init__(self, folder: pathlib.Path, limit_bytes: int = LIMIT_BYTES):
        """Makes the folder, which nobody else may read.

        Args:
          folder: On a local disk; actors that name the same one share it.
          limit_bytes: What is used least goes when there is more, but nothing that is in use.

        Raises:
          ConfigError: It can't be made.
        """
        self._folder, self._limit_bytes = folder, limit_bytes
        self._began = time.time()
        with _worded(self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def find(self, name: str) -> Stored | None:
        """Returns a complete file, or None; a damaged one is removed."""
        path = self._folder / name
        with _worded(self._folder):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                return None
            status = os.fstat(file.fileno())
            try:
                stored = Stored(file, check=status.st_mtime < self._began)
            except ValueError as error:
                logger.warning("%s is damaged, %s; fetching it again.", path, error)
                file.close()
                path.unlink(missing_ok=True)
                return None
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))
            return stored

    def claim(self, name: str, manifest: weights.Manifest) -> Part | None:
        """Returns the part to download into; None while another does, or if it just did."""
        path = self._folder / f"{name}.part"
        with _worded(self._folder):
            file = _locked(path)
            if file is None and _is_stalled(path):
                path = path.with_suffix(f".{os.getpid()}.part")
                file = _locked(path)
            if file is None:
                return None
            part = Part(path, file, manifest)
            if (self._folder / name).exists():  # since the caller looked
                part.discard()
                return None
            return part

    def keep(self, name: str, part: Part, leaves: Iterable[tuple[str, np.ndarray]]) -> None:
        """Writes a complete file of these leaves in place of the part."""
        new = part.path.with_suffix(".new")
        with _worded(self._folder):
            with new.open("wb") as file:
                checked = _Checked(file)
                tensors = weights.write(checked, leaves)
                table: bytes = msgpack.packb(tensors)
                checked.write(table)
                file.write(_FOOTER.pack(len(table), checked.crc, _MAGIC))
            new.chmod(0o400)
            new.rename(self._folder / name)
        part.discard()

    def drop(self, name: str) -> None:
        """Removes a file that nobody will ask for again; those who map it keep it."""
        if name:
            (self._folder / name).unlink(missing_ok=True)

    def prune(self, in_use: Iterable[str]) -> None:
        """Removes what was not used for longest until the folder is within its limit."""
        used = set(in_use)
        found: list[tuple[float, int, pathlib.Path]] = []
        for path in filter(_is_ours, self._folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append((max(status.st_atime, status.st_mtime), status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit_bytes:
                return
            if path.name not in used:
                path.unlink(missing_ok=True)
                total -= size
                logger.info("Removed %s, as the folder of parameters is full.", path)


def _is_ours(path: pathlib.Path) -> bool:
    return re.match(r"[0-9a-f]{64}\.", path.name) is not None


def _read(file: Opened, tensor: weights.Tensor) -> np.ndarray:
    array = np.empty(tensor.shape, weights.WIRE_DTYPES[tensor.dtype])
    file.seek(tensor.offset)
    file.readinto(array.reshape(-1).view(np.uint8).data)
    return array


def _crc(file: Opened, size: int) -> int:
    """Returns the CRC-32 of the first bytes of a file."""
    file.seek(0)
    crc = 0
    while size and (block := file.read(min(BLOCK_BYTES, size))):
        crc, size = zlib.crc32(block, crc), size - len(block)
    return crc


class _Checked:
    """A file with the CRC-32 of what was written."""

    def __init__(self, file: io.BufferedWriter):
        self._file = file
        self.crc = 0

    def write(self, data: bytes | memoryview) -> None:
        self.crc = zlib.crc32(data, self.crc)
        self._file.write(data)


@contextlib.contextmanager
def _worded(folder: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.ConfigError(
            f"The folder of parameters, {folder}, can't be used: {error.strerror}. "
            "Make room or give rights there, or name another one with --cache."
        ) from error


def _locked(path: pathlib.Path) -> io.BufferedRandom | None:
    """Opens a file for this process alone, until it is closed or the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "r+b")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass  # someone has it, or has just finished it
    file.close()
    return None


def _is_stalled(path: pathlib.Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > STALLED_S
    except FileNotFoundError:
        return False
