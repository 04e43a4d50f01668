"""The files of a Hugging Face folder: JSON, and tensors in one file or in shards with an index."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from common.errors import ConfigError

Tensors = dict[str, np.ndarray]

MAX_SHARD_BYTES = 5 * 10**9  # as transformers
_DTYPES = {  # all three are exact in float32
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file; raises ConfigError where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} should hold an object, not {content!r:.40}.")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def has_safetensors(folder: Path) -> bool:
    return any((folder / f"model.safetensors{end}").exists() for end in ("", ".index.json"))


def read_tensors(folder: Path) -> Tensors:
    """Reads model.safetensors, or the shards that model.safetensors.index.json names.

    Raises:
      ConfigError: A file is missing or unreadable, or a tensor has not the type of weights.
    """
    tensors: Tensors = {}
    for path in shards(folder, "model.safetensors"):
        try:
            tensors.update(load_file(path))
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"Cannot read {path}: {error}.") from error
    check_dtypes(tensors, folder)
    return tensors


def check_dtypes(tensors: Tensors, folder: Path) -> None:
    """Raises ConfigError if tensors have another type than weights have, and names them."""
    odd = [f"{n} is {t.dtype.name}" for n, t in tensors.items() if t.dtype.name not in _DTYPES]
    if odd:
        known = ", ".join(_DTYPES)
        raise ConfigError(f"The tensors in {folder} must be one of {known}: {'; '.join(odd)}.")


def shards(folder: Path, name: str) -> list[Path]:
    """Returns the files that make up `name`: those of its index, or itself."""
    index = folder / f"{name}.index.json"
    files = set(weight_map(index).values()) if index.exists() else {name}
    return [folder / file for file in sorted(files)]


def weight_map(index: Path) -> dict[str, str]:
    """Returns the file of each tensor; raises ConfigError if the index does not say it."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise ConfigError(f"{index} has no weight_map from tensors to files.")
    return files


def write_tensors(
    folder: Path,
    tensors: Tensors,
    dtypes: Mapping[str, str],
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes the inverse of `read_tensors`.

    Args:
      folder: Must exist.
      tensors: Of float32; views are copied shard by shard.
      dtypes: What tensors are cast to that are not to be float32.
      max_shard_bytes: A file is at most so large, unless one tensor is larger.
    """
    planned = list(_planned(tensors, dtypes, max_shard_bytes))
    weight_map: dict[str, str] = {}
    for index, names in enumerate(planned, 1):
        part = f"-{index:05}-of-{len(planned):05}" if len(planned) > 1 else ""
        file = f"model{part}.safetensors"
        weight_map |= dict.fromkeys(names, file)
        shard = {name: np.ascontiguousarray(tensors[name], _dtype(dtypes, name)) for name in names}
        save_file(shard, folder / file, metadata={"format": "pt"})  # transformers asks for it
    if len(planned) > 1:
        total = sum(_size(tensor, dtypes, name) for name, tensor in tensors.items())
        index_file = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(folder / "model.safetensors.index.json", index_file)


def _planned(
    tensors: Tensors, dtypes: Mapping[str, str], max_shard_bytes: int
) -> Iterator[list[str]]:
    """Yields the names of each shard."""
    names: list[str] = []
    left = max_shard_bytes
    for name, tensor in tensors.items():
        size = _size(tensor, dtypes, name)
        if names and size > left:
            yield names
            names, left = [], max_shard_bytes
        names.append(name)
        left -= size
    yield names


def _size(tensor: np.ndarray, dtypes: Mapping[str, str], name: str) -> int:
    return math.prod(tensor.shape) * _dtype(dtypes, name).itemsize


def _dtype(dtypes: Mapping[str, str], name: str) -> np.dtype:
    return _DTYPES[dtypes.get(name, "float32")]
