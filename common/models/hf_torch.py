"""Tensors in PyTorch's own format, for folders that hold nothing else. Needs the torch extra."""

from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes

from common.errors import ConfigError
from common.models import hf_files
from common.models.hf_files import Tensors

FILE = "pytorch_model.bin"


def has_only_pickles(folder: Path) -> bool:
    found = any((folder / f"{FILE}{end}").exists() for end in ("", ".index.json"))
    return found and not hf_files.has_safetensors(folder)


def read_tensors(folder: Path) -> Tensors:
    """Reads pytorch_model.bin, or its shards; torch refuses all but tensors in them.

    Raises:
      ConfigError: torch is not installed, or a file is unreadable or holds something else.
    """
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f"{folder} has its tensors in {FILE} alone, which torch must read: "
            "`pip install .[torch]`, or save it as safetensors elsewhere."
        ) from error
    tensors: Tensors = {}
    for path in hf_files.shards(folder, FILE):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ConfigError(f"Cannot read {path}: {error}.") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{path} holds {type(content).__name__}, not tensors by name.")
        for name, tensor in content.items():
            if not isinstance(tensor, torch.Tensor):
                raise ConfigError(f"{path} holds a {type(tensor).__name__} {name}.")
            tensor = tensor.detach()
            if tensor.dtype == torch.bfloat16:  # NumPy itself has none
                tensors[name] = tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
            else:
                tensors[name] = tensor.numpy()
    hf_files.check_dtypes(tensors, folder)
    return tensors
