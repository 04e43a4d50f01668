"""Auto-UI in Hugging Face folders: config.json and tensors, in and out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from common.errors import ConfigError
from common.models import autoui, hf_config, hf_files, hf_layout, hf_torch
from common.models.autoui import AutoUIConfig, Params
from common.models.hf_files import Tensors
from common.models.hf_layout import ALIASES, EMBEDDING, HEAD


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a folder holds that our config and parameters don't: with it they go back bit by bit.

    Attributes:
      settings: All of config.json.
      embeddings: The names under which the embedding and the head were stored.
      dtypes: Of the tensors that are not float32.
      unused: Tensors without effect, such as the bias of the fusion's keys.
    """

    settings: dict[str, Any]
    embeddings: tuple[str, ...]
    dtypes: dict[str, str]
    unused: Tensors

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` takes; JSON can hold it, for float32 is exact in decimals."""
        unused = {name: tensor.tolist() for name, tensor in self.unused.items()}
        return {**vars(self), "embeddings": list(self.embeddings), "unused": unused}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Origin:
        unused = {name: np.asarray(v, np.float32) for name, v in values["unused"].items()}
        return cls(**{**values, "embeddings": tuple(values["embeddings"]), "unused": unused})


class Pretrained(NamedTuple):
    """What was loaded; `text_only` if it was a plain T5, so that the fusion is fresh."""

    config: AutoUIConfig
    params: Params  # float32 on the host
    origin: Origin
    text_only: bool


def load(
    folder: Path | str,
    prompt_length: int = hf_config.PROMPT_LENGTH,
    action_length: int = hf_config.ACTION_LENGTH,
    seed: int = 0,
) -> Pretrained:
    """Reads config.json with safetensors, or with PyTorch's own format if torch is installed.

    Args:
      folder: Holds the files of an Auto-UI or of a plain T5.
      prompt_length: Of the config that is returned; the tensors don't depend on it.
      action_length: As well.
      seed: Of the fusion's parameters, if there are none.

    Raises:
      ConfigError: A file is missing or unreadable, the kind of model is unknown, or tensors are
        missing, left over or of another shape, all of which are named.
    """
    folder = Path(folder)
    settings = hf_files.read_json(folder / "config.json")
    if hf_torch.has_only_pickles(folder):
        tensors = hf_torch.read_tensors(folder)
    else:
        tensors = hf_files.read_tensors(folder)
    dtypes = {n: t.dtype.name for n, t in tensors.items() if t.dtype != np.float32}
    embeddings = tuple(name for name in (EMBEDDING, *ALIASES, HEAD) if name in tensors)
    text_only = hf_layout.is_text_only(tensors)
    tied = _resolve_embeddings(tensors, hf_config.scales(settings), folder)
    image = tensors.get("image_dense.weight")
    config = hf_config.to_config(
        settings,
        tied,
        hf_config.IMAGE_DIM if image is None or image.ndim != 2 else image.shape[1],
        prompt_length,
        action_length,
    )
    params, unused = hf_layout.to_params(config, tensors, folder, text_only)
    if text_only:
        params |= _fresh_fusion(config, seed)
    return Pretrained(config, params, Origin(settings, embeddings, dtypes, unused), text_only)


def _resolve_embeddings(tensors: Tensors, scaled: bool, folder: Path) -> bool:
    """Leaves the embedding under one name, and a head if it is untied; returns whether it is tied.

    A head that is missing or equal to the embedding is tied to it. T5 scales tied states by
    d_model^-0.5, unless the settings say otherwise: then the head is a copy, and nothing is scaled.
    """
    alone = (EMBEDDING, *ALIASES, *([HEAD] if scaled else []))
    embedding = next((tensors[name] for name in alone if name in tensors), None)
    if embedding is None:
        return False  # reported with all else that is missing
    for alias in ALIASES:
        if not np.array_equal(tensors.pop(alias, embedding), embedding):
            raise ConfigError(f"The tensors in {folder} do not fit: {alias} is not {EMBEDDING}.")
    tensors[EMBEDDING] = embedding
    head = tensors.pop(HEAD, embedding)
    tied = scaled and np.array_equal(head, embedding)
    if not tied:
        tensors[HEAD] = head
    return tied


def _fresh_fusion(config: AutoUIConfig, seed: int) -> Params:
    @jax.jit  # XLA leaves out what is not returned
    def fusion(key: jax.Array) -> Params:
        params = autoui.init(config, key)
        return {name: params[name] for name in params if name != "t5"}

    return jax.device_get(fusion(jax.random.key(seed)))


def save(
    folder: Path | str,
    config: AutoUIConfig,
    params: Params,
    origin: Origin | None = None,
    max_shard_bytes: int = hf_files.MAX_SHARD_BYTES,
) -> None:
    """The inverse of `load`: writes config.json and safetensors.

    Args:
      folder: Is made; it should not hold another model's shards.
      config: Of the parameters.
      params: NumPy arrays, float32.
      origin: Of what `load` returned, whether or not it was trained since.
      max_shard_bytes: More than this goes to several files and an index.

    Raises:
      ConfigError: The layout has no place for such a model.
    """
    folder = Path(folder)
    if config.image_grid is not None:
        raise ConfigError(
            "This model reads patches of the screen, which no Hugging Face class does: only models "
            "with the features of an image encoder can be exported."
        )
    folder.mkdir(parents=True, exist_ok=True)
    tensors = hf_layout.to_tensors(config, params, origin.unused if origin else {})
    embedding = tensors.pop(EMBEDDING)
    head = tensors.pop(HEAD, embedding)
    names = origin.embeddings if origin else (EMBEDDING, *([] if config.tied else [HEAD]))
    for name in {*names, *([] if np.array_equal(head, embedding) else [HEAD])}:
        tensors[name] = head if name == HEAD else embedding
    dtypes = origin.dtypes if origin else {}
    hf_files.write_tensors(folder, tensors, dtypes, max_shard_bytes)
    settings = hf_config.to_settings(config, origin.settings if origin else None)
    hf_files.write_json(folder / "config.json", settings)
