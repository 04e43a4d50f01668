"""BLIP-2's image encoder: a vision transformer with norms before each block and one at the end.

Dosovitskiy et al., "An Image is Worth 16x16 Words" (2021); Li et al., "BLIP-2" (2023), whose ViT-g
is EVA-CLIP's. Shapes: B images of S x S pixels, P patches, T = 1 + P positions of which the first
stands for the image, D model width, H heads, K width of a head.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from common.errors import ConfigError
from common.models import t5

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """Shape of an image encoder; the defaults are ViT-g's."""

    image_size: int = 224  # pixels, either way
    patch_size: int = 14  # pixels
    d_model: int = 1408
    num_heads: int = 16
    d_ff: int = 6144
    layers: int = 39
    qkv_bias: bool = True
    norm_epsilon: float = 1e-6
    dtype: str = "float32"  # of matrix products; the stream between the blocks stays float32

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "d_model", "num_heads", "d_ff", "layers"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} is {value!r}; it must be a positive integer.")
        for name, by in (("image_size", "patch_size"), ("d_model", "num_heads")):
            if getattr(self, name) % getattr(self, by):
                raise ConfigError(
                    f"{name} {getattr(self, name)} is no multiple of {by} {getattr(self, by)}."
                )
        if self.dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"dtype is {self.dtype!r}; it must be float32 or bfloat16.")

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2


PRESETS = {
    "vit-g": ViTConfig(),  # 986 M parameters
    "small": ViTConfig(image_size=28, patch_size=7, d_model=32, num_heads=2, d_ff=64, layers=2),
}


class Encoded(NamedTuple):
    states: jax.Array  # [B, T, D] float32, after the last norm
    pooled: jax.Array  # [B, D] float32, the image's own position, after the last norm once more


class LayerNorm(nn.Module):
    """Over the last axis, in float32; the result is in the config's dtype."""

    epsilon: float
    dtype: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = t5.parameter(self, "scale", ("norm",), x.shape[-1:], mean=1.0)
        bias = t5.parameter(self, "bias", ("norm",), x.shape[-1:])
        wide = x.astype(jnp.float32)
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(wide * wide, axis=-1, keepdims=True)
        return (wide * lax.rsqrt(variance + self.epsilon) * scale + bias).astype(self.dtype)


class Attention(nn.Module):
    config: ViTConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c = self.config
        dense = functools.partial(t5.Dense, dtype=c.dtype)
        width = c.d_model // c.num_heads
        qkv = dense(3 * c.d_model, ("embed", "heads"), use_bias=c.qkv_bias, name="qkv")(x)
        qkv = qkv.reshape(*x.shape[:2], 3, c.num_heads, width)
        query, key, value = jnp.moveaxis(qkv, (2, 3), (0, 2))  # [B, H, T, K] each
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(scores * width**-0.5, axis=-1).astype(c.dtype)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, value).transpose(0, 2, 1, 3)
        mixed = mixed.reshape(x.shape)
        return dense(c.d_model, ("heads", "embed"), use_bias=True, name="projection")(mixed)


class Layer(nn.Module):
    config: ViTConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c = self.config
        norm = functools.partial(LayerNorm, c.norm_epsilon, c.dtype)
        dense = functools.partial(t5.Dense, dtype=c.dtype, use_bias=True)
        x = x + Attention(c, name="attention")(norm(name="attention_norm")(x))
        wide = dense(c.d_ff, ("embed", "mlp"), name="wi")(norm(name="ff_norm")(x))
        wide = jax.nn.gelu(wide, approximate=False)
        return t5.residual(x + dense(c.d_model, ("mlp", "embed"), name="wo")(wide))


class ViT(nn.Module):
    config: ViTConfig

    @nn.compact
    def __call__(self, pixels: jax.Array) -> Encoded:
        c = self.config
        first = t5.parameter(self, "class", ("one", "one", "embed"), (1, 1, c.d_model), 0.02)
        shape = (1, 1 + c.patches, c.d_model)
        positions = t5.parameter(self, "positions", ("one", "position", "embed"), shape, 0.02)
        embed = t5.Dense(c.d_model, ("patch", "embed"), c.dtype, use_bias=True, name="patches")
        x = embed(_patches(pixels, c.patch_size)).astype(jnp.float32)
        first = jnp.broadcast_to(first, (len(x), 1, c.d_model))
        x = t5.residual(jnp.concatenate([first, x], axis=1) + positions)
        for index in range(c.layers):
            x = Layer(c, name=f"layer_{index}")(x)
        norm = LayerNorm(c.norm_epsilon, "float32", name="norm")
        states = norm(x)
        return Encoded(states, norm(states[:, 0]))


def _patches(pixels: jax.Array, size: int) -> jax.Array:
    """Cuts [B, S, S, C] into patches in reading order, [B, P, size * size * C]."""
    batch, height, width, channels = pixels.shape
    grid = pixels.reshape(batch, height // size, size, width // size, size, channels)
    return grid.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, size * size * channels)


def init(config: ViTConfig, key: jax.Array) -> Params:
    """Returns fresh float32 parameters as a plain nested dict."""
    pixels = jnp.zeros((1, config.image_size, config.image_size, 3), jnp.float32)
    return jax.jit(lambda k: nn.meta.unbox(ViT(config).init(k, pixels))["params"])(key)


def encode(params: Params, config: ViTConfig, pixels: jax.Array) -> Encoded:
    """Encodes images.

    Args:
      params: From `init`, or a checkpoint's; of any floating dtype.
      config: Their shape.
      pixels: [B, S, S, 3] floats, normalised as the encoder was trained.

    Returns:
      States of all positions, and of each image.
    """
    return cast(Encoded, ViT(config).apply({"params": params}, pixels))
