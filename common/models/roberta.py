"""RoBERTa's encoder, frozen: texts to vectors.

Liu et al., "RoBERTa" (2019); a BERT whose positions begin after the padding's id. Parameters are
plain dicts named as in the Hugging Face layout and read from a local folder. Shapes: B batch, L
tokens, D width, H heads.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from common.errors import ConfigError

Params = dict[str, jax.Array | np.ndarray]

MASKED = -1e9
_PREFIX = "roberta."  # of the encoder in a checkpoint that has a head, too
_EMBEDDINGS = ("word", "position", "token_type")
# Not of the states: heads, counters, and a pooler, which the published checkpoint does not have.
_OTHERS = ("lm_head.", "classifier.", "pooler.", "embeddings.position_ids")


@dataclasses.dataclass(frozen=True)
class RobertaConfig:
    """Shape of an encoder, by default roberta-base; the names are those of config.json."""

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 514
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 1
    bos_token_id: int = 0
    eos_token_id: int = 2

    @property
    def max_tokens(self) -> int:
        """The longest text, with its start and end tokens."""
        return self.max_position_embeddings - self.pad_token_id - 1


def encode(params: Params, config: RobertaConfig, ids: jax.Array) -> jax.Array:
    """Returns the last layer's states, float32 [B, L, D], of ids [B, L] padded with the pad id."""
    c = config
    real = ids != c.pad_token_id
    positions = jnp.where(real, jnp.cumsum(real, axis=1), 0) + c.pad_token_id
    x = params["embeddings.word_embeddings.weight"][ids]
    x = x + params["embeddings.position_embeddings.weight"][positions]
    x = x + params["embeddings.token_type_embeddings.weight"][0]
    x = _norm(params, "embeddings.LayerNorm", x, c)
    bias = jnp.where(real, 0.0, MASKED)[:, None, None, :]
    for number in range(c.num_hidden_layers):
        layer = f"encoder.layer.{number}"
        attended = _attention(params, f"{layer}.attention", x, bias, c)
        x = _norm(params, f"{layer}.attention.output.LayerNorm", x + attended, c)
        hidden = _dense(params, f"{layer}.intermediate.dense", x)
        changed = _dense(params, f"{layer}.output.dense", jax.nn.gelu(hidden, approximate=False))
        x = _norm(params, f"{layer}.output.LayerNorm", x + changed, c)
    return x


@functools.partial(jax.jit, static_argnums=1)
def encode_texts(params: Params, config: RobertaConfig, ids: jax.Array) -> jax.Array:
    """Returns the mean state over each text's tokens, float32 [B, D], for padded ids [B, L].

    DigiRL takes the pooler's output, but the published checkpoint has no pooler, and its start
    token was never trained to stand for the text.
    """
    real = (ids != config.pad_token_id)[..., None]
    states = jnp.where(real, encode(params, config, ids), 0.0)
    return states.sum(1) / jnp.maximum(real.sum(1), 1)


def load(folder: Path | str) -> tuple[RobertaConfig, Params]:
    """Reads config.json and model.safetensors of a RoBERTa, with a head or without one.

    Raises:
      ConfigError: A file is missing or unreadable, the model is another, or tensors are missing,
        left over or of another shape, all of which are named.
    """
    folder = Path(folder)
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise ConfigError(f"{folder} holds no RoBERTa: {error}.") from error
    kind = settings.get("model_type"), settings.get("hidden_act", "gelu")
    if kind != ("roberta", "gelu"):
        raise ConfigError(f"The model in {folder} is {kind}, not ('roberta', 'gelu').")
    names = {field.name for field in dataclasses.fields(RobertaConfig)} & set(settings)
    config = RobertaConfig(**{name: settings[name] for name in names})
    tensors = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}
    params = {name: x for name, x in tensors.items() if not name.startswith(_OTHERS)}
    _check(params, shapes(config), folder)
    return config, {name: np.asarray(x, np.float32) for name, x in params.items()}


def shapes(config: RobertaConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every parameter; matrices are [outputs, inputs], as torch has them."""
    c, width = config, config.hidden_size
    sizes = {"word": c.vocab_size, "position": c.max_position_embeddings, "token_type": 1}
    found: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (sizes[name], width) for name in _EMBEDDINGS
    }
    norms = ["embeddings.LayerNorm"]
    for number in range(c.num_hidden_layers):
        layer = f"encoder.layer.{number}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        for name, outputs, inputs in (
            *((f"attention.self.{name}", width, width) for name in ("query", "key", "value")),
            ("attention.output.dense", width, width),
            ("intermediate.dense", c.intermediate_size, width),
            ("output.dense", width, c.intermediate_size),
        ):
            found[f"{layer}.{name}.weight"] = (outputs, inputs)
            found[f"{layer}.{name}.bias"] = (outputs,)
    return found | {f"{norm}.{kind}": (width,) for norm in norms for kind in ("weight", "bias")}


def _check(
    params: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]], folder: Path
) -> None:
    problems = [f"{name} is missing" for name in sorted(expected.keys() - params.keys())]
    problems += [f"{name} is left over" for name in sorted(params.keys() - expected.keys())]
    problems += [
        f"{name} is {list(params[name].shape)}, not {list(expected[name])}"
        for name in sorted(params.keys() & expected.keys())
        if params[name].shape != expected[name]
    ]
    if problems:
        raise ConfigError(f"The tensors in {folder} do not fit: {'; '.join(problems)}.")


def _dense(params: Params, name: str, x: jax.Array) -> jax.Array:
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def _norm(params: Params, name: str, x: jax.Array, config: RobertaConfig) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(variance + config.layer_norm_eps)
    return normal * params[f"{name}.weight"] + params[f"{name}.bias"]


def _attention(
    params: Params, name: str, x: jax.Array, bias: jax.Array, config: RobertaConfig
) -> jax.Array:
    heads = config.num_attention_heads

    def split(which: str) -> jax.Array:
        return _dense(params, f"{name}.self.{which}", x).reshape(*x.shape[:2], heads, -1)

    query, keys, values = map(split, ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, keys) * query.shape[-1] ** -0.5
    weights = jax.nn.softmax(scores + bias, axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(x.shape)
    return _dense(params, f"{name}.output.dense", mixed)
