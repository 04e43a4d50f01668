"""Messages on disk: two frames behind a checksum, one record after the other in a file.

The journal of the learner and the spool of an actor are made of them. What is read is checked here
against damage, and against nonsense by `messages.unpack` and `codec.decode_episode`, like what
comes over the wire.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from common import messages

# CRC-32 of all that follows it, number of the record, bytes of the header, bytes of the body.
_PREFIX = struct.Struct("<IQII")


class DamagedError(Exception):
    """A record is torn or altered; it begins at the file's position before the call."""


class Record(NamedTuple):
    """A message with its number."""

    number: int
    frames: list[bytes]


def parts(number: int, frames: Sequence[bytes]) -> tuple[bytes, ...]:
    """Returns what a record of the two frames of a message is made of, without a copy of them."""
    header, body = frames
    prefix = _PREFIX.pack(0, number, len(header), len(body))[4:]
    crc = zlib.crc32(body, zlib.crc32(header, zlib.crc32(prefix)))
    return crc.to_bytes(4, "little") + prefix, header, body


def pack(number: int, frames: Sequence[bytes]) -> bytes:
    """Returns a record of the two frames of a message."""
    return b"".join(parts(number, frames))


def read(file: BinaryIO) -> Record | None:
    """Returns the next record of a file, or None where it ends.

    Raises:
      DamagedError: What is there is no whole record.
    """
    prefix = file.read(_PREFIX.size)
    if not prefix:
        return None
    if len(prefix) < _PREFIX.size:
        raise DamagedError
    crc, number, header_size, body_size = _PREFIX.unpack(prefix)
    if header_size > messages.MAX_HEADER_BYTES or body_size > messages.MAX_BODY_BYTES:
        raise DamagedError  # before anything of that size is read
    header, body = file.read(header_size), file.read(body_size)
    if len(header) < header_size or len(body) < body_size:
        raise DamagedError
    if zlib.crc32(body, zlib.crc32(header, zlib.crc32(prefix[4:]))) != crc:
        raise DamagedError
    return Record(number, [header, body])
