"""Our parameters and the tensors of an Auto-UI in the Hugging Face layout.

A tensor's name with [q], [k] or [v] stands for those rows of torch's joint projection.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import numpy as np

from common.errors import ConfigError
from common.models import autoui
from common.models.autoui import AutoUIConfig, Params
from common.models.hf_files import Tensors

EMBEDDING, HEAD = "shared.weight", "lm_head.weight"
ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # of EMBEDDING
FUSION = ("image_dense.", "mha_layer.", "gate_dense.")  # what Auto-UI has and T5 has not
_JOINT = "mha_layer.in_proj_"
_KEY_BIAS = f"{_JOINT}bias[k]"
_UNUSED = (
    _KEY_BIAS,  # moves all scores of a query alike, which the softmax drops
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",  # of old T5s
)


def is_text_only(tensors: Tensors) -> bool:
    """Returns whether these are a plain T5's: nothing in them knows of images."""
    return not any(name.startswith(FUSION) for name in tensors)


def to_params(
    config: AutoUIConfig, tensors: Tensors, where: object, text_only: bool = False
) -> tuple[Params, Tensors]:
    """Returns our parameters, and the tensors that have no effect, as float32 on the host.

    Args:
      config: Says which tensors there should be.
      tensors: As they were read; the embedding under its own name alone, its head only if untied.
      where: Names the tensors' source in an error.
      text_only: Takes a plain T5 and returns the parameters of the part "t5" alone.

    Raises:
      ConfigError: Tensors are missing, left over or of another shape, all of which are named.
    """
    tensors = _split(tensors)
    unused = {name: tensors.pop(name).astype(np.float32) for name in _UNUSED if name in tensors}
    shapes = jax.eval_shape(functools.partial(autoui.init, config), jax.random.key(0))
    if text_only:
        shapes = {"t5": shapes["t5"]}
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    theirs = dict(names(config))
    converted, problems = [], []
    for path, leaf in leaves:
        ours = "/".join(key.key for key in path)
        name = theirs[ours]
        if name not in tensors:
            problems.append(f"{name} is missing")
            continue
        tensor = tensors.pop(name)
        expected = leaf.shape[::-1] if _is_transposed(ours) else leaf.shape
        if tensor.shape != expected:
            problems.append(f"{name} is {list(tensor.shape)}, not {list(expected)}")
            continue
        oriented = tensor.T if _is_transposed(ours) else tensor
        converted.append(np.ascontiguousarray(oriented, np.float32))
    problems += [f"{name} is left over" for name in sorted(tensors)]
    if problems:
        raise ConfigError(f"The tensors in {where} do not fit: {'; '.join(problems)}.")
    return jax.tree.unflatten(structure, converted), unused


def to_tensors(config: AutoUIConfig, params: Params, unused: Tensors) -> Tensors:
    """The inverse of `to_params`; without an unused key bias it is 0."""
    theirs = dict(names(config))
    tensors: Tensors = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        ours = "/".join(key.key for key in path)
        tensors[theirs[ours]] = np.asarray(leaf).T if _is_transposed(ours) else np.asarray(leaf)
    tensors |= {_KEY_BIAS: np.zeros(config.d_model, np.float32), **unused}
    return _joined(tensors)


def _is_transposed(ours: str) -> bool:
    """Whether torch keeps this parameter as [outputs, inputs]."""
    return ours.split("/")[-1] in ("kernel", "head", "k")


def _split(tensors: Tensors) -> Tensors:
    tensors = dict(tensors)
    for kind in ("weight", "bias"):
        joint = tensors.pop(_JOINT + kind, None)
        if joint is not None:
            for name, part in zip("qkv", np.array_split(joint, 3), strict=True):
                tensors[f"{_JOINT}{kind}[{name}]"] = part
    return tensors


def _joined(tensors: Tensors) -> Tensors:
    for kind in ("weight", "bias"):
        parts = [tensors.pop(f"{_JOINT}{kind}[{name}]") for name in "qkv"]
        tensors[_JOINT + kind] = np.concatenate(parts)
    return tensors


def names(config: AutoUIConfig) -> Iterator[tuple[str, str]]:
    """Yields our parameter, with slashes, and the tensor's name, for all parameters."""
    yield "t5/embedding", EMBEDDING
    if not config.tied:
        yield "t5/head", HEAD
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
    yield "fusion/k", f"{_JOINT}weight[k]"
    for ours, weight, bias in (
        ("image/dense", "image_dense.weight", "image_dense.bias"),
        ("fusion/q", f"{_JOINT}weight[q]", f"{_JOINT}bias[q]"),
        ("fusion/v", f"{_JOINT}weight[v]", f"{_JOINT}bias[v]"),
        ("fusion/o", "mha_layer.out_proj.weight", "mha_layer.out_proj.bias"),
        ("fusion/gate", "gate_dense.weight", "gate_dense.bias"),
    ):
        yield f"{ours}/kernel", weight
        yield f"{ours}/bias", bias
