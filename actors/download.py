"""The actor's end of the parameter socket: pulls the newest blob in chunks that it verifies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import jax
import zmq

from common import channel, errors, messages, weights
from common.channel import Kind
from common.models import lora
from common.types import Version

logger = logging.getLogger(__name__)

CREDIT = 4  # chunks under way: enough to fill the pipe, little enough to be no load on the learner
ASK_AGAIN_S = 3.0
MAX_BAD_CHUNKS = 8


class Download:
    """One blob that is being assembled."""

    def __init__(self, manifest: weights.Manifest):
        self.manifest = manifest
        self.buffer = bytearray(manifest.size)
        self.missing = dict.fromkeys(range(len(manifest.chunk_sha256)), 0.0)  # chunk -> ask when
        self.bad_chunks = 0

    def due(self, now: float) -> list[int]:
        """Returns the chunks to ask for now; of the missing ones the first few are under way."""
        first = list(self.missing.items())[:CREDIT]
        return [index for index, ask_at in first if now >= ask_at]

    def take(self, index: int, data: bytes) -> None:
        """Keeps a chunk if it is right, and asks again if not.

        Raises:
          WireError: BAD_CHECKSUM after many wrong chunks.
        """
        if index not in self.missing:
            return  # asked for twice
        if weights.verify_chunk(data, index, self.manifest):
            self.buffer[self.manifest.chunk(index)] = data
            del self.missing[index]
            return
        self.bad_chunks += 1
        self.missing[index] = 0.0
        logger.warning("Chunk %d of %s came damaged.", index, self.manifest.version)
        if self.bad_chunks > MAX_BAD_CHUNKS:
            raise errors.WireError("BAD_CHECKSUM", f"{self.bad_chunks} chunks came damaged.")


class ParameterReader:
    """Fetches parameters; a fetch that ran out of time goes on in the next call.

    If versions are adapters, their base is fetched once, before the first of them, and kept: also
    over restarts of the learner, as long as it serves the same.
    """

    def __init__(self, owner: zmq.Context, address: str):
        self._context = owner
        self._socket = channel.dealer(owner, address)
        self._download: Download | None = None
        self._ask_at = 0.0  # for the manifest
        self._base: dict[str, Any] = {}
        self._base_sha256 = ""
        self._missing_base = ""  # the digest of one that a version completes

    def reset(self, address: str) -> None:
        """Turns to a restarted learner; also from within `while_waiting`."""
        self.close()
        self._socket = channel.dealer(self._context, address)
        self._download = None
        self._ask_at = 0.0
        self._missing_base = ""

    def close(self) -> None:
        self._socket.close(0)

    def fetch(
        self,
        known: Version | None,
        dtype: str | None,
        timeout_s: float,
        while_waiting: Callable[[], None],
    ) -> tuple[Version, dict[str, Any]] | None:
        """Returns the newest parameters, adapters merged.

        Args:
          known: The version that the caller has.
          dtype: What floating leaves are cast to; None leaves them as they travelled.
          timeout_s: Time for this call.
          while_waiting: Called a few times a second.

        Returns:
          Version and nested dicts of arrays; None if there is nothing newer or the time is over.

        Raises:
          WireError: The bytes don't match their digests, or the learner refuses.
        """
        deadline = time.monotonic() + timeout_s
        self._ask_at = 0.0
        while (now := time.monotonic()) < deadline:
            if self._download is None and now >= self._ask_at:
                self._ask_at = now + self._ask(Kind.GET_MANIFEST, self._wanted(known))
            elif self._download is not None:
                for index in self._download.due(now):
                    lineage, step = self._download.manifest.version
                    fields = {"lineage": lineage, "step": step, "index": index}
                    wait_s = self._ask(Kind.GET_CHUNK, fields)
                    self._download.missing[index] = now + wait_s
            if self._socket.poll(50):
                header, body = messages.unpack(self._socket.recv_multipart())
                if header.type == Kind.UNCHANGED and self._download is None:
                    return None
                if header.type == Kind.MANIFEST and self._download is None:
                    manifest = weights.Manifest.from_message(header, body)
                    if manifest.version == known:
                        return None
                    self._begin(manifest)
                self._take(header, body)
            if self._download is not None and not self._download.missing:
                done, self._download = self._download, None
                params = weights.unpack(done.buffer, done.manifest, dtype)
                if done.manifest.sha256 != self._missing_base:
                    return done.manifest.version, self._complete(params, done.manifest)
                self._base, self._base_sha256 = jax.device_put(params), self._missing_base
                self._missing_base = ""
                self._ask_at = 0.0
            while_waiting()
        logger.warning("No newer parameters within %.0f s; going on with the old.", timeout_s)
        return None

    def _wanted(self, known: Version | None) -> dict[str, Any]:
        """Returns the fields of GET_MANIFEST."""
        if self._missing_base:
            return {"base": True}
        return {} if known is None else {"lineage": known.lineage, "step": known.step}

    def _begin(self, manifest: weights.Manifest) -> None:
        """Begins to download what a manifest names, or asks for its base first."""
        if manifest.base not in ("", self._base_sha256):
            self._missing_base = manifest.base
            self._ask_at = 0.0
        else:
            self._download = Download(manifest)

    def _complete(self, params: dict[str, Any], manifest: weights.Manifest) -> dict[str, Any]:
        if not manifest.base:
            return params
        return lora.merge(lora.union(self._base, params))

    def _take(self, header: messages.Header, body: bytes) -> None:
        """Handles the replies to GET_CHUNK."""
        if header.type == Kind.REFUSE:
            raise errors.WireError(header.text("code", 64), header.text("reason"))
        if header.type not in (Kind.CHUNK, Kind.GONE) or self._download is None:
            return
        version = Version(header.integer("lineage"), header.integer("step"))
        if version != self._download.manifest.version:
            return  # of an earlier download
        if header.type == Kind.GONE:
            self._download = None
            self._ask_at = 0.0
            return
        try:
            self._download.take(header.integer("index"), body)
        except errors.WireError:
            self._download = None
            raise

    def _ask(self, kind: Kind, fields: dict[str, Any]) -> float:
        """Sends a request; returns after how many seconds to repeat it."""
        return ASK_AGAIN_S if channel.send(self._socket, messages.pack(kind, fields)) else 0.05
