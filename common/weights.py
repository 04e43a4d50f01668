"""Parameters <-> one immutable blob of bytes with a manifest.

A pytree of nested dicts is flattened to paths ("encoder/0/wq") in sorted order; each tensor is
little-endian at a multiple of 64 bytes. The manifest has the table of tensors, the SHA-256 of every
chunk and that of the whole, so a receiver can fetch chunks in any order and trust the result.

Where most parameters never change, as under adapters, they are a blob of their own, the base. Its
version has the step 0, and the manifests of all others name it by its digest.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import msgpack
import numpy as np

from common import errors, messages
from common.codec import aligned
from common.types import Version

CHUNK_BYTES = 1024 * 1024
MAX_BLOB_BYTES = 32 * 1024**3
BASE_STEP = 0  # where there is a base, versions begin at 1
WIRE_DTYPES = {
    "float32": np.dtype("<f4"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int32": np.dtype("<i4"),
}
FLOAT_DTYPES = ("float32", "bfloat16")


# What can be sliced as bytes: bytes, memoryview, mmap.
Buffer = bytes | bytearray | memoryview | mmap.mmap


class Writable(Protocol):
    """What `write` needs of a file."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class Tensor(NamedTuple):
    """Where one tensor lies in the blob."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * WIRE_DTYPES[self.dtype].itemsize


class Manifest(NamedTuple):
    """What a receiver has to know about a blob; digests are hexadecimal."""

    version: Version
    size: int
    sha256: str
    chunk_bytes: int
    chunk_sha256: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    base: str = ""  # digest of the blob that these parameters complete, if there is one

    def to_message(self, kind: str) -> list[bytes]:
        """Returns the frames; the tables are in the body, as they may be larger than a header."""
        fields = {
            "lineage": self.version.lineage,
            "step": self.version.step,
            "size": self.size,
            "sha256": self.sha256,
            "chunk_bytes": self.chunk_bytes,
            "base": self.base,
        }
        tables = {"tensors": self.tensors, "chunk_sha256": self.chunk_sha256}
        return messages.pack(kind, fields, msgpack.packb(tables))

    @classmethod
    def from_message(cls, header: messages.Header, body: bytes) -> Manifest:
        """Returns a manifest that is consistent in itself; raises WireError else."""
        try:
            tables = msgpack.unpackb(body, max_ext_len=0)
            tensors = tuple(
                Tensor(path, dtype, tuple(shape), offset)
                for path, dtype, shape, offset in tables["tensors"]
            )
            digests = tuple(tables["chunk_sha256"])
            end = 0
            for tensor in tensors:
                if not all(type(size) is int and size >= 0 for size in tensor.shape):
                    raise ValueError(f"{tensor.path!r} has the shape {tensor.shape}")
                if type(tensor.path) is not str or tensor.offset != aligned(end):
                    raise ValueError(f"{tensor.path!r} is not where it has to be")
                end = tensor.offset + tensor.nbytes
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise errors.WireError("BAD_SCHEMA", f"The manifest is malformed: {error}.") from error
        manifest = cls(
            version=Version(header.integer("lineage"), header.integer("step")),
            size=header.integer("size", 1, MAX_BLOB_BYTES),
            sha256=_hexadecimal(header, "sha256"),
            chunk_bytes=header.integer("chunk_bytes", 1, messages.MAX_BODY_BYTES),
            chunk_sha256=digests,
            tensors=tensors,
            base="" if header.absent("base") else _hexadecimal(header, "base"),
        )
        if end != manifest.size or len(digests) != -(-manifest.size // manifest.chunk_bytes):
            raise errors.WireError("BAD_SCHEMA", "The manifest's sizes contradict each other.")
        return manifest

    def chunk(self, index: int) -> slice:
        """Returns where a chunk lies in the blob."""
        return slice(index * self.chunk_bytes, min((index + 1) * self.chunk_bytes, self.size))


def wire_leaves(params: Any, dtype: str = "bfloat16") -> Iterator[tuple[str, np.ndarray]]:
    """Yields paths and arrays of a pytree as they travel, in sorted order.

    Args:
      params: Nested dicts; leaves are NumPy or JAX arrays, float or int32.
      dtype: "float32" or "bfloat16", to which every floating leaf is cast.

    Raises:
      ValueError: Another kind of tree, a number that is not finite, or a dtype that can't travel.
    """
    if dtype not in FLOAT_DTYPES:
        raise ValueError(f"dtype is {dtype!r}, not in {FLOAT_DTYPES}.")
    for path, leaf in _flatten(params):
        array = np.asarray(leaf)
        if array.dtype != np.int32:
            if array.dtype.name not in ("float16", "float32", "float64", "bfloat16"):
                raise ValueError(f"{path} has the dtype {array.dtype}.")
            array = array.astype(WIRE_DTYPES[dtype], copy=False)
            if not np.isfinite(array).all():
                raise ValueError(f"{path} holds numbers that are not finite.")
        yield path, array


def write(file: Writable, leaves: Iterable[tuple[str, np.ndarray]]) -> tuple[Tensor, ...]:
    """Lays tensors into a new file, one at a time, and returns where they are.

    Raises:
      ValueError: There are none.
    """
    tensors, end = [], 0
    for path, array in leaves:
        tensor = Tensor(path, array.dtype.name, array.shape, aligned(end))
        file.write(bytes(tensor.offset - end))
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        tensors.append(tensor)
        end = tensor.offset + tensor.nbytes
    if not end:
        raise ValueError("There are no parameters to pack.")
    return tuple(tensors)


def describe(
    blob: Buffer,
    version: Version,
    tensors: Iterable[Tensor],
    chunk_bytes: int = CHUNK_BYTES,
    base: str = "",
) -> Manifest:
    """Returns the manifest of a blob that `write` laid out; chunks but the last are equal."""
    view = memoryview(blob)
    digests = tuple(
        _digest(view[start : start + chunk_bytes]) for start in range(0, len(view), chunk_bytes)
    )
    whole = _digest(view)
    return Manifest(version, len(view), whole, chunk_bytes, digests, tuple(tensors), base)


def verify_chunk(data: bytes, index: int, manifest: Manifest) -> bool:
    """Returns whether these are the bytes of that chunk."""
    place = manifest.chunk(index)
    return len(data) == place.stop - place.start and _digest(data) == manifest.chunk_sha256[index]


def views(blob: Buffer, tensors: Iterable[Tensor]) -> dict[str, np.ndarray]:
    """Returns read-only arrays by path, which are views of the blob and keep it alive."""
    view = memoryview(blob).toreadonly()
    return {
        tensor.path: np.frombuffer(
            view, WIRE_DTYPES[tensor.dtype], math.prod(tensor.shape), tensor.offset
        ).reshape(tensor.shape)
        for tensor in tensors
    }


def tree(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested dicts that have these leaves."""
    params: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, name = path.split("/")
        node = params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return params


def digest(params: Any) -> str:
    """Returns the SHA-256 of a pytree of nested dicts of arrays: of paths, types and contents."""
    whole = hashlib.sha256()
    for path, leaf in _flatten(params):
        array = np.ascontiguousarray(leaf)
        whole.update(f"{path} {array.dtype} {array.shape}\n".encode())
        whole.update(array.view(np.uint8).data)
    return whole.hexdigest()


def _flatten(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        if isinstance(tree, list | tuple) or not prefix:
            raise ValueError(f"{prefix or 'The tree'} is a {type(tree).__name__}, not a dict.")
        yield prefix, tree
        return
    if prefix and not tree:
        raise ValueError(f"{prefix} is an empty dict, which would be lost.")
    for key in sorted(tree):
        if not isinstance(key, str) or not key or "/" in key:
            raise ValueError(f"{key!r} below {prefix!r} can't be part of a path.")
        yield from _flatten(tree[key], f"{prefix}/{key}" if prefix else key)


def _hexadecimal(header: messages.Header, name: str) -> str:
    """Returns a digest, which becomes the name of a file; "" for none."""
    digest = header.text(name, 64)
    if not re.fullmatch("[0-9a-f]{64}|", digest):
        raise errors.WireError("BAD_VALUE", f"{name} is no SHA-256 digest.")
    return digest


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
