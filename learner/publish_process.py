"""The parameters' socket in a process of its own, which may fail, and is started again.

The learner writes a version to a file and names it to the process, which computes the digests and
serves it; so adding an actor costs the learner nothing. Files are kept for as long as the process
may have to begin again with them.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any, Self

from common import errors, weights
from common.keys import LearnerKeys
from common.types import Version
from learner.child import Child, parent
from learner.publish import KEPT_BLOBS, Publisher

MEMORY_BYTES = 512 * 1024**2  # of its own; blobs are mapped files


class PublisherProcess:
    """Starts, watches and tells a process that runs a `Publisher`; has its methods."""

    def __init__(
        self,
        address: str,
        folder: pathlib.Path,
        insecure: bool = False,
        keys: pathlib.Path | None = None,
    ):
        """Starts it and waits until it listens.

        Args:
          address: As in `Publisher`, like `insecure`.
          folder: For the blobs; this process's alone, and what an earlier one left there is
            removed.
          insecure: Whether a socket without keys may be reached from other hosts.
          keys: The learner's folder of keys.

        Raises:
          ConfigError: The address can't be bound, or the folder can't be used.
        """
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("*.blob"):
                old.unlink()
        except OSError as error:
            raise errors.ConfigError(f"{folder} can't be used: {error.strerror}.") from error
        self._options = {"address": address, "insecure": insecure, "keys": keys and str(keys)}
        self._base: list[Any] = []  # what the process was told of it
        self._kept: dict[Version, list[Any]] = {}
        self._child = Child(__name__, "The parameters' process", self._first)
        try:
            self.port = self._child.await_port()
        except BaseException:
            self._child.close()
            raise
        self._options["address"] = f"{address.rpartition(':')[0]}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._child.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    def check(self) -> None:
        """Starts the process again if it has died; to be called every second or so.

        Raises:
          DistRLError: It died once too often.
        """
        self._child.hear()

    def publish_base(self, params: Any, lineage: int, dtype: str = "bfloat16") -> None:
        """As in `Publisher`."""
        self._base = self._write(params, Version(lineage, weights.BASE_STEP), dtype)
        self._child.tell(["publish_base", *self._base])

    def publish(self, params: Any, version: Version, dtype: str = "bfloat16") -> None:
        """Writes the parameters, which are served a moment later; else as in `Publisher`."""
        self.check()
        if version in self._kept:
            raise ValueError(f"{version} is already published.")
        self._kept[version] = self._write(params, version, dtype)
        self._child.tell(["publish", *self._kept[version]])
        while len(self._kept) > KEPT_BLOBS:
            path, *_ = self._kept.pop(next(iter(self._kept)))
            pathlib.Path(path).unlink()

    def _write(self, params: Any, version: Version, dtype: str) -> list[Any]:
        path = self._folder / f"{version.lineage}-{version.step}.blob"
        with path.open("wb") as file:
            tensors = weights.write(file, weights.wire_leaves(params, dtype))
        return [str(path), tensors, version]

    def _first(self) -> list[Any]:
        """Returns what a process has to know: how to listen, and what there is."""
        base = [["publish_base", *self._base]] if self._base else []
        return [self._options, *base, *(["publish", *kept] for kept in self._kept.values())]


def main() -> None:
    """Serves what it is told of until the learner is gone."""
    with parent(MEMORY_BYTES) as connection, contextlib.suppress(EOFError):
        options = json.loads(connection.recv_bytes())
        try:
            keys = LearnerKeys.load(pathlib.Path(options["keys"])) if options["keys"] else None
            publisher = Publisher(options["address"], options["insecure"], keys=keys)
        except errors.ConfigError as error:
            connection.send_bytes(json.dumps({"error": str(error)}).encode())
            return
        with publisher.start():
            connection.send_bytes(json.dumps({"port": publisher.port}).encode())
            while True:
                _serve(publisher, *json.loads(connection.recv_bytes()))


def _serve(
    publisher: Publisher, kind: str, path: str, table: list[list[Any]], version: list[int]
) -> None:
    tensors = [weights.Tensor(name, dtype, tuple(s), at) for name, dtype, s, at in table]
    with (
        contextlib.suppress(FileNotFoundError),  # while this was busy, newer ones came
        pathlib.Path(path).open("rb") as file,
    ):
        serve = publisher.serve_base if kind == "publish_base" else publisher.serve
        serve(file, tensors, Version(*version))
