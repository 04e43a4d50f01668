"""The learner's parameter socket: serves immutable blobs in chunks that actors pull."""

from __future__ import annotations

import contextlib
import logging
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from common import errors, messages, weights
from common.channel import Kind
from common.keys import LearnerKeys
from common.types import Version
from learner.service import Service

logger = logging.getLogger(__name__)

KEPT_BLOBS = 2  # the newest, and the one before for downloads that are under way


class Blob(NamedTuple):
    """A published version: its bytes, manifest, and the manifest's message."""

    data: mmap.mmap  # of a file, which may have lost its name
    manifest: weights.Manifest
    announcement: list[bytes]


class Publisher(Service):
    """Serves the newest parameters, and the ones before for those who have begun to fetch them."""

    def __init__(
        self,
        address: str,
        insecure: bool = False,
        chunk_bytes: int = weights.CHUNK_BYTES,
        keys: LearnerKeys | None = None,
    ):
        """Binds; `start` begins to answer. See `Service` for the errors.

        Args:
          address: As in `Service`.
          insecure: As in `Service`.
          chunk_bytes: What is sent at a time.
          keys: As in `Service`.
        """
        super().__init__(address, insecure, keys)
        self._chunk_bytes = chunk_bytes
        self._blobs: dict[Version, Blob] = {}  # oldest first; replaced as a whole, never changed
        self._base: Blob | None = None

    def publish_base(self, params: Any, lineage: int, dtype: str = "bfloat16") -> None:
        """Serves what all versions have in common; comes before the first of them.

        Args:
          params: The part of the parameters that `publish` is not given.
          lineage: Of the versions.
          dtype: As in `publish`.

        Raises:
          ValueError: The parameters can't be packed.
        """
        with self._written(params, dtype) as (file, tensors):
            self.serve_base(file, tensors, Version(lineage, weights.BASE_STEP))

    def publish(self, params: Any, version: Version, dtype: str = "bfloat16") -> None:
        """Packs parameters on the calling thread, and makes them the newest at once.

        Args:
          params: Nested dicts of NumPy or JAX arrays; those of the base are left out.
          version: Their version; a version is published once.
          dtype: "bfloat16" or "float32", on the wire.

        Raises:
          ValueError: The parameters can't be packed, or the version is already published.
        """
        self.check()
        with self._written(params, dtype) as (file, tensors):
            self.serve(file, tensors, version)

    def serve_base(
        self, file: BinaryIO, tensors: Iterable[weights.Tensor], version: Version
    ) -> None:
        """Serves a base that lies in a file, which never changes; it may be closed and removed."""
        self._base = self._blob(file, tensors, version)

    def serve(self, file: BinaryIO, tensors: Iterable[weights.Tensor], version: Version) -> None:
        """Makes a version that lies in a file the newest, else as `serve_base`.

        Raises:
          ValueError: The version is already published.
        """
        if version in self._blobs:
            raise ValueError(f"{version} is already published.")
        base = "" if self._base is None else self._base.manifest.sha256
        blob = self._blob(file, tensors, version, base)
        kept = dict(list(self._blobs.items())[1 - KEPT_BLOBS :])
        self._blobs = kept | {version: blob}
        self._count("published")
        logger.debug("Published version %d, %d bytes.", version.step, blob.manifest.size)

    @contextlib.contextmanager
    def _written(
        self, params: Any, dtype: str
    ) -> Iterator[tuple[BinaryIO, tuple[weights.Tensor, ...]]]:
        """Writes parameters to a file without a name."""
        with tempfile.TemporaryFile() as file:
            tensors = weights.write(file, weights.wire_leaves(params, dtype))
            file.flush()
            yield file, tensors

    def _blob(
        self, file: BinaryIO, tensors: Iterable[weights.Tensor], version: Version, base: str = ""
    ) -> Blob:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        manifest = weights.describe(data, version, tensors, self._chunk_bytes, base)
        return Blob(data, manifest, manifest.to_message(Kind.MANIFEST))

    def _answer(self, peer: bytes, header: messages.Header, body: bytes) -> list[bytes]:
        kind, blobs = header.type, self._blobs
        if kind == Kind.GET_MANIFEST:
            self._count("manifests")
            if self._base is not None and not header.absent("base"):
                return self._base.announcement
            newest = next(reversed(blobs), None)
            if newest is None or (not header.absent("step") and _version(header) == newest):
                return messages.pack(Kind.UNCHANGED, {})
            return blobs[newest].announcement
        if kind == Kind.GET_CHUNK:
            base = {} if self._base is None else {self._base.manifest.version: self._base}
            return self._chunk(blobs | base, header)
        raise errors.WireError("BAD_SCHEMA", f"This socket has no use for the type {kind!r}.")

    def _chunk(self, blobs: dict[Version, Blob], header: messages.Header) -> list[bytes]:
        version, index = _version(header), header.integer("index")
        reply = {"lineage": version.lineage, "step": version.step, "index": index}
        if version not in blobs:
            self._count("gone")
            return messages.pack(Kind.GONE, reply)
        data, manifest, _ = blobs[version]
        if index >= len(manifest.chunk_sha256):
            raise errors.WireError("BAD_VALUE", f"There is no chunk {index}.")
        self._count("chunks")
        return messages.pack(Kind.CHUNK, reply, data[manifest.chunk(index)])


def _version(header: messages.Header) -> Version:
    return Version(header.integer("lineage"), header.integer("step"))
