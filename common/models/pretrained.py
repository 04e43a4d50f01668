"""Auto-UI checkpoints in the Hugging Face layout to our parameters."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from common.errors import ConfigError
from common.models import autoui
from common.models.autoui import AutoUIConfig, Params

Tensors = dict[str, np.ndarray]

_EMBEDDING, _HEAD = "shared.weight", "lm_head.weight"
_ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # of _EMBEDDING
_UNUSED = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)  # old T5s


def load(
    folder: Path | str, prompt_length: int = 512, action_length: int = 128
) -> tuple[AutoUIConfig, Params]:
    """Reads config.json and model.safetensors, or the shards that an index names.

    Args:
      folder: Holds the files.
      prompt_length: Of the config that is returned; the tensors don't depend on it.
      action_length: As well.

    Returns:
      The config, and the parameters as float32 on the host.

    Raises:
      ConfigError: A file is missing or unreadable, the kind of model is unknown, or tensors are
        missing, left over or of another shape, all of which are named.
    """
    folder = Path(folder)
    settings = _read_json(folder / "config.json")
    tensors = _read_tensors(folder)
    for alias in (*_ALIASES, *_UNUSED):
        tensors.pop(alias, None)
    tied = _resolve_head(tensors, settings.get("tie_word_embeddings") is not False)
    config = _config(settings, tensors, tied, prompt_length, action_length)
    _split_projections(tensors)
    return config, _convert(config, tensors, folder)


def _resolve_head(tensors: Tensors, scaled: bool) -> bool:
    """Returns whether embeddings are tied, which the tensors know better than the settings.

    A head that is missing or equal to the embedding is tied to it. T5 scales tied states by
    d_model^-0.5, unless the settings say untied: then the head is a copy, and nothing is scaled.
    """
    if _EMBEDDING not in tensors:
        return False  # reported with all else that is missing
    embedding = tensors[_EMBEDDING]
    if not np.array_equal(tensors.get(_HEAD, embedding), embedding):
        return False
    tensors.pop(_HEAD, None)
    if not scaled:
        tensors[_HEAD] = embedding
    return scaled


def _config(
    settings: dict[str, Any], tensors: Tensors, tied: bool, prompt_length: int, action_length: int
) -> AutoUIConfig:
    kind = settings.get("feed_forward_proj", "relu")
    if kind not in ("relu", "gated-gelu"):
        raise ConfigError(f"feed_forward_proj is {kind!r}; known are 'relu' and 'gated-gelu'.")
    image = tensors.get("image_dense.weight")
    try:
        return AutoUIConfig(
            vocab_size=settings["vocab_size"],
            d_model=settings["d_model"],
            num_heads=settings["num_heads"],
            d_kv=settings["d_kv"],
            d_ff=settings["d_ff"],
            encoder_layers=settings["num_layers"],
            decoder_layers=settings.get("num_decoder_layers") or settings["num_layers"],
            gated=kind == "gated-gelu",
            tied=tied,
            relative_buckets=settings.get("relative_attention_num_buckets", 32),
            relative_max_distance=settings.get("relative_attention_max_distance", 128),
            norm_epsilon=settings.get("layer_norm_epsilon", 1e-6),
            image_dim=1408 if image is None or image.ndim != 2 else image.shape[1],
            image_tokens=1,
            image_grid=None,
            prompt_length=prompt_length,
            action_length=action_length,
        )
    except KeyError as error:
        raise ConfigError(f"config.json does not give {error}: is it a T5's?") from error


def _split_projections(tensors: Tensors) -> None:
    """Replaces torch's joint projection by its rows for q, k and v.

    The keys' bias goes: it moves all scores of a query alike, and the softmax drops it.
    """
    for kind in ("weight", "bias"):
        joint = tensors.pop(f"mha_layer.in_proj_{kind}", None)
        if joint is not None:
            for name, part in zip("qkv", np.array_split(joint, 3), strict=True):
                tensors[f"mha_layer.in_proj_{kind}[{name}]"] = part
    tensors.pop("mha_layer.in_proj_bias[k]", None)


def _convert(config: AutoUIConfig, tensors: Tensors, folder: Path) -> Params:
    shapes = jax.eval_shape(functools.partial(autoui.init, config), jax.random.key(0))
    names = dict(_names(config))
    problems = [f"{name} is left over" for name in sorted(set(tensors) - set(names.values()))]
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    converted = []
    for path, leaf in leaves:
        ours = "/".join(key.key for key in path)
        name = names[ours]
        if name not in tensors:
            problems.append(f"{name} is missing")
            continue
        transposed = path[-1].key in ("kernel", "head", "k")  # torch keeps [outputs, inputs]
        expected = leaf.shape[::-1] if transposed else leaf.shape
        if tensors[name].shape != expected:
            problems.append(f"{name} is {list(tensors[name].shape)}, not {list(expected)}")
            continue
        tensor = tensors[name].T if transposed else tensors[name]
        converted.append(np.ascontiguousarray(tensor, np.float32))
    if problems:
        raise ConfigError(f"The tensors in {folder} do not fit: {'; '.join(problems)}.")
    return jax.tree.unflatten(structure, converted)


def _names(config: AutoUIConfig) -> Iterator[tuple[str, str]]:
    """Yields our parameter and the tensor, for all parameters."""
    yield "t5/embedding", _EMBEDDING
    if not config.tied:
        yield "t5/head", _HEAD
    for stack, layers, blocks in (
        ("encoder", config.encoder_layers, (("attention", "SelfAttention"),)),
        (
            "decoder",
            config.decoder_layers,
            (("attention", "SelfAttention"), ("cross", "EncDecAttention")),
        ),
    ):
        yield f"t5/{stack}_norm/scale", f"{stack}.final_layer_norm.weight"
        relative = "layer.0.SelfAttention.relative_attention_bias.weight"
        yield f"t5/{stack}_relative", f"{stack}.block.0.{relative}"
        for index in range(layers):
            ours, theirs = f"t5/{stack}_{index}", f"{stack}.block.{index}.layer"
            for place, (block, their_block) in enumerate(blocks):
                yield f"{ours}/{block}_norm/scale", f"{theirs}.{place}.layer_norm.weight"
                for name in "qkvo":
                    their_name = f"{theirs}.{place}.{their_block}.{name}.weight"
                    yield f"{ours}/{block}/{name}/kernel", their_name
            yield f"{ours}/ff_norm/scale", f"{theirs}.{len(blocks)}.layer_norm.weight"
            for name in ("wi_0", "wi_1", "wo") if config.gated else ("wi", "wo"):
                their_name = f"{theirs}.{len(blocks)}.DenseReluDense.{name}.weight"
                yield f"{ours}/ff/{name}/kernel", their_name
    yield "fusion/k", "mha_layer.in_proj_weight[k]"
    for ours, weight, bias in (
        ("image/dense", "image_dense.weight", "image_dense.bias"),
        ("fusion/q", "mha_layer.in_proj_weight[q]", "mha_layer.in_proj_bias[q]"),
        ("fusion/v", "mha_layer.in_proj_weight[v]", "mha_layer.in_proj_bias[v]"),
        ("fusion/o", "mha_layer.out_proj.weight", "mha_layer.out_proj.bias"),
        ("fusion/gate", "gate_dense.weight", "gate_dense.bias"),
    ):
        yield f"{ours}/kernel", weight
        yield f"{ours}/bias", bias


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} should hold an object, not {content!r:.40}.")
    return content


def _read_tensors(folder: Path) -> Tensors:
    index = folder / "model.safetensors.index.json"
    files = {"model.safetensors"}
    if index.exists():
        files = set(_read_json(index).get("weight_map", {}).values())
    tensors = {}
    for name in sorted(files):
        try:
            tensors.update(load_file(folder / name))
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"Cannot read {folder / name}: {error}.") from error
    return tensors
