"""Tensors of a local folder in the Hugging Face layout, read one at a time."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open

from common.errors import ConfigError
from common.models.hf_files import weight_map

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"


class LazyTensors:
    """The tensors of model.safetensors, or of the shards that an index names.

    Only what is asked for is read, so that a part of a checkpoint needs neither the memory of the
    rest nor its shards.

    Attributes:
      names: Of all tensors.
    """

    def __init__(self, folder: Path):
        """Raises ConfigError if the index, or the file without one, can't be read."""
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._opened: dict[str, Any] = {}
        if (folder / INDEX).exists():
            files = weight_map(folder / INDEX)
        else:
            files = dict.fromkeys(self._open(WHOLE).keys(), WHOLE)
        self._files: dict[str, str] = files
        self.names = frozenset(files)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of one of `names`; ConfigError if its file can't be read."""
        return tuple(self._call(name, "get_slice").get_shape())

    def read(self, name: str) -> np.ndarray:
        """Returns one of `names` as it is stored; ConfigError if its file can't be read."""
        return self._call(name, "get_tensor")

    def _call(self, name: str, method: str) -> Any:
        file = self._files[name]
        try:
            return getattr(self._open(file), method)(name)
        except SafetensorError as error:
            raise ConfigError(f"Cannot read {name} in {self._folder / file}: {error}.") from error

    def _open(self, file: str) -> Any:
        if file not in self._opened:
            path = self._folder / file
            try:
                opened = self._stack.enter_context(safe_open(path, framework="numpy"))
            except (OSError, SafetensorError) as error:
                raise ConfigError(f"Cannot read {path}: {error}.") from error
            self._opened[file] = opened
        return self._opened[file]
