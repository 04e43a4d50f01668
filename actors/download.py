"""The actor's end of the parameter socket: pulls the newest blob in chunks that it verifies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import zmq

from actors.cache import Cache, Part, Stored
from common import channel, errors, messages, weights
from common.channel import Kind
from common.models import lora
from common.types import Version

logger = logging.getLogger(__name__)

CREDIT = 4  # chunks under way: enough to fill the pipe, little enough to be no load on the learner
ASK_AGAIN_S = 3.0


class ParameterReader:
    """Fetches parameters; what was fetched when the time was over is there in the next call.

    If versions are adapters, their base is fetched once, before the first of them, and kept: also
    over restarts of the learner and of the actor, as long as it is the same.
    """

    def __init__(self, connect: Callable[[str], zmq.Socket], address: str, cache: Cache):
        self._connect, self._cache = connect, cache
        self._socket = connect(address)
        self._ask_at = 0.0  # for the manifest
        self._manifest: weights.Manifest | None = None  # of what is to come next
        self._part: Part | None = None
        self._base: Stored | None = None
        self._base_sha256 = ""
        self._missing_base = ""  # the digest of one that a version completes
        self._name = ""  # the file of the version that was returned last

    def reset(self, address: str) -> None:
        """Turns to a restarted learner; also from within `while_waiting`."""
        self._socket.close(0)
        self._socket = self._connect(address)
        self._begin(None)
        self._missing_base = ""

    def close(self) -> None:
        self._release()
        self._socket.close(0)
        if self._base is not None:
            self._base.close()

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
          Version and nested dicts of arrays, which are read-only views of a file in the cache; None
          if there is nothing newer or the time is over.

        Raises:
          ConfigError: The folder of the cache is full, or can't be used.
          WireError: The bytes don't match their digests, or the learner refuses.
        """
        deadline = time.monotonic() + timeout_s
        self._ask_at = 0.0
        try:
            while time.monotonic() < deadline:
                self._ask(known, dtype)
                if self._socket.poll(50):
                    header, body = messages.unpack(self._socket.recv_multipart())
                    if self._take(header, body, known):
                        return None
                if self._part is not None and not self._part.missing:
                    self._finish(self._part, dtype)
                if (params := self._found(dtype)) is not None:
                    return params
                while_waiting()
        finally:
            self._release()
        logger.warning("No newer parameters within %.0f s; going on with the old.", timeout_s)
        return None

    def _ask(self, known: Version | None, dtype: str | None) -> None:
        """Sends what is due: for the manifest, or for the first of the chunks that are missing."""
        now, manifest = time.monotonic(), self._manifest
        if manifest is None:
            if now >= self._ask_at:
                fields: dict[str, Any] = {"base": True} if self._missing_base else {}
                if known is not None and not self._missing_base:
                    fields = {"lineage": known.lineage, "step": known.step}
                self._ask_at = now + self._send(Kind.GET_MANIFEST, fields)
            return
        if self._part is None:  # or another actor of this host has it
            self._part = self._cache.claim(_name(manifest, dtype), manifest)
        if self._part is not None:
            lineage, step = manifest.version
            for index, ask_at in list(self._part.missing.items())[:CREDIT]:
                if now >= ask_at:
                    fields = {"lineage": lineage, "step": step, "index": index}
                    self._part.missing[index] = now + self._send(Kind.GET_CHUNK, fields)

    def _take(self, header: messages.Header, body: bytes, known: Version | None) -> bool:
        """Handles a reply; returns whether it says that there is nothing newer."""
        if header.type == Kind.REFUSE:
            raise errors.WireError(header.text("code", 64), header.text("reason"))
        if self._manifest is None:
            if header.type == Kind.UNCHANGED:
                return True
            if header.type == Kind.MANIFEST:
                manifest = weights.Manifest.from_message(header, body)
                if manifest.version == known:
                    return True
                if manifest.sha256 != self._base_sha256:  # which was asked for twice
                    self._begin(manifest)
        elif self._part is not None and header.type in (Kind.CHUNK, Kind.GONE):
            version = Version(header.integer("lineage"), header.integer("step"))
            if version != self._manifest.version:
                pass  # of an earlier download
            elif header.type == Kind.GONE:
                self._part.discard()
                self._begin(None)
            else:
                self._take_chunk(self._part, header.integer("index"), body)
        return False

    def _take_chunk(self, part: Part, index: int, data: bytes) -> None:
        try:
            part.take(index, data)
        except errors.WireError:
            self._begin(None)
            raise

    def _begin(self, manifest: weights.Manifest | None) -> None:
        """Turns to what a manifest names; without one, asks for the next."""
        self._release()
        self._manifest, self._ask_at = manifest, 0.0

    def _finish(self, part: Part, dtype: str | None) -> None:
        """Makes a complete file of a complete download."""
        manifest, self._part = part.manifest, None
        leaves = part.leaves(dtype)
        try:
            part.verify()
            if manifest.base:
                assert self._base is not None, "_found() fetches it first"
                leaves = lora.merged_leaves(leaves, self._base.read)
            self._cache.keep(_name(manifest, dtype), part, leaves)
        except (KeyError, ValueError) as error:
            raise errors.WireError("BAD_SCHEMA", f"The adapters don't fit: {error}.") from error
        finally:
            part.close()

    def _found(self, dtype: str | None) -> tuple[Version, dict[str, Any]] | None:
        """Returns what the manifest names, once its file and that of its base are there."""
        manifest = self._manifest
        if manifest is None or self._part is not None:
            return None
        if manifest.base not in ("", self._base_sha256) and not self._find_base(
            manifest.base, dtype
        ):
            self._missing_base = manifest.base
            self._begin(None)
            return None
        if manifest.sha256 == self._missing_base:
            if self._find_base(manifest.sha256, dtype):
                self._missing_base = ""
                self._begin(None)
            return None
        name = _name(manifest, dtype)
        stored = self._cache.find(name)
        if stored is None:
            return None
        leaves = stored.views()
        stored.close()
        if manifest.base:
            assert self._base is not None, "it was found above"
            leaves = self._base.views() | leaves
        if self._name != name:
            self._cache.drop(self._name)
            self._name = name
        self._cache.prune({name, _file(self._base_sha256, dtype)})
        self._begin(None)
        return manifest.version, weights.tree(leaves)

    def _find_base(self, sha256: str, dtype: str | None) -> bool:
        base = self._cache.find(_file(sha256, dtype))
        if base is None:
            return False
        if self._base is not None:
            self._base.close()
        self._base, self._base_sha256 = base, sha256
        return True

    def _release(self) -> None:
        """Leaves a download to whoever goes on, this process or another."""
        if self._part is not None:
            self._part.close()
            self._part = None

    def _send(self, kind: Kind, fields: dict[str, Any]) -> float:
        """Sends a request; returns after how many seconds to repeat it."""
        return ASK_AGAIN_S if channel.send(self._socket, messages.pack(kind, fields)) else 0.05


def _name(manifest: weights.Manifest, dtype: str | None) -> str:
    """Returns the name of the file that a blob becomes; adapters merged depend on their base."""
    if not manifest.base:
        return _file(manifest.sha256, dtype)
    return f"{manifest.sha256}.{_file(manifest.base, dtype)}"


def _file(sha256: str, dtype: str | None) -> str:
    return f"{sha256}.{dtype or 'wire'}"
