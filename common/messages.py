"""Two-frame messages: a msgpack header with a version and a type, and one body of bytes.

Headers are small and capped, bodies are opaque here. Nothing received is believed before it was
checked: `unpack` checks the frames and the form of the header, and `Header` checks each field when
it is read. All refusals are `errors.WireError` with one of these codes:

  BAD_FRAMES    not exactly two frames
  TOO_LARGE     a frame, a field or a count above its cap
  BAD_HEADER    not a msgpack map with text keys, or a key twice, or an extension type
  BAD_VERSION   another protocol version
  BAD_SCHEMA    a field is missing, of the wrong type, or a column is not as the learner expects it
  BAD_VALUE     well-formed, but outside its range
  BAD_CHECKSUM  the bytes are not those that were sent
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgpack

from common import errors

PROTOCOL_VERSION = 2
MAX_HEADER_BYTES = 64 * 1024  # caps what a hostile header can unfold to: about 4 MB
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_TEXT = 4096  # characters of one text field
INT64_MAX = 2**63 - 1


class Header:
    """The fields of a received header; each accessor checks the type and the range.

    Attributes:
      raw: The frame as it was received.
    """

    def __init__(self, fields: dict[str, Any], raw: bytes = b""):
        self._fields = fields
        self.raw = raw

    def get(self, name: str, kind: type) -> Any:
        """Returns a field of exactly this type (a bool is no int); raises BAD_SCHEMA."""
        if name not in self._fields:
            raise errors.WireError("BAD_SCHEMA", f"The field {name!r} is missing.")
        value = self._fields[name]
        if type(value) is not kind:
            raise errors.WireError(
                "BAD_SCHEMA", f"{name} is of type {type(value).__name__}, not {kind.__name__}."
            )
        return value

    def text(self, name: str, limit: int = MAX_TEXT) -> str:
        value = self.get(name, str)
        if len(value) > limit:
            raise errors.WireError("TOO_LARGE", f"{name} is longer than {limit} characters.")
        return value

    def integer(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        value = self.get(name, int)
        if not low <= value <= high:
            raise errors.WireError("BAD_VALUE", f"{name} is {value}, not in [{low}, {high}].")
        return value

    def number(self, name: str, low: float = 0.0, high: float = math.inf) -> float:
        value = self.get(name, float)
        if not (math.isfinite(value) and low <= value <= high):
            raise errors.WireError("BAD_VALUE", f"{name} is {value}, not in [{low}, {high}].")
        return value

    def flag(self, name: str) -> bool:
        return self.get(name, bool)

    def absent(self, name: str) -> bool:
        """Whether a field is missing or nil."""
        return self._fields.get(name) is None

    @property
    def type(self) -> str:
        return self.text("type", 32)


def pack(kind: str, fields: dict[str, Any], body: bytes = b"") -> list[bytes]:
    """Returns the two frames of a message.

    Raises:
      WireError: TOO_LARGE for a header or body over its cap; BAD_HEADER for a field that msgpack
        has no type for.
    """
    try:
        header = msgpack.packb({"v": PROTOCOL_VERSION, "type": str(kind), **fields})
    except (TypeError, ValueError, OverflowError) as error:
        raise errors.WireError(
            "BAD_HEADER", f"The {kind} header can't be packed: {error}."
        ) from error
    _check_sizes(header, body)
    return [header, body]


def unpack(frames: Sequence[bytes]) -> tuple[Header, bytes]:
    """Returns header and body of a received message; raises WireError, whatever was received."""
    if len(frames) != 2:
        raise errors.WireError("BAD_FRAMES", f"A message has 2 frames, this one {len(frames)}.")
    raw, body = frames
    _check_sizes(raw, body)
    try:
        fields = msgpack.unpackb(
            raw, object_pairs_hook=_unique, ext_hook=_no_extension, max_ext_len=0
        )
    except (ValueError, OverflowError) as error:
        raise errors.WireError("BAD_HEADER", f"The header is not msgpack: {error}.") from error
    if type(fields) is not dict:
        raise errors.WireError("BAD_HEADER", "The header is not a map.")
    header = Header(fields, raw)
    version = header.get("v", int)
    if version != PROTOCOL_VERSION:
        raise errors.WireError(
            "BAD_VERSION", f"The message has protocol version {version}, not {PROTOCOL_VERSION}."
        )
    return header, body


def _check_sizes(header: bytes, body: bytes) -> None:
    if len(header) > MAX_HEADER_BYTES:
        raise errors.WireError(
            "TOO_LARGE", f"The header has {len(header)} bytes, more than {MAX_HEADER_BYTES}."
        )
    if len(body) > MAX_BODY_BYTES:
        raise errors.WireError(
            "TOO_LARGE", f"The body has {len(body)} bytes, more than {MAX_BODY_BYTES}."
        )


def _unique(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Refuses what msgpack would accept in silence: a key twice (the last wins) and bytes keys."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise errors.WireError("BAD_HEADER", "A key is in the header twice.")
    if not all(type(key) is str for key in fields):
        raise errors.WireError("BAD_HEADER", "A key of the header is not text.")
    return fields


def _no_extension(code: int, data: bytes) -> Any:
    raise errors.WireError("BAD_HEADER", f"Extension type {code} is not allowed.")
