"""T5's encoder and decoder: v1.1 (gated gelu) and v1.0 (relu), with tied or untied embeddings.

Parameters are float32 and named for sharding by logical axes; matrix products run in `dtype`, while
norms, attention scores and logits are float32. Shapes: B batch, L or S or A tokens, D model width,
H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MASKED = -1e9  # finite, so that a row without any key has a finite softmax and gradient
KeysValues = tuple[jax.Array, jax.Array]  # each [B, H, L, K]


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Shape of a T5; the names are those of the Hugging Face configuration where it has them."""

    vocab_size: int = 1024
    d_model: int = 64
    num_heads: int = 2
    d_kv: int = 32
    d_ff: int = 256
    encoder_layers: int = 2
    decoder_layers: int = 2
    gated: bool = True  # v1.1: gelu(x W0) * (x W1); v1.0: relu(x W)
    tied: bool = False  # the output matrix is the embedding, and logits scale by d_model^-0.5
    relative_buckets: int = 32
    relative_max_distance: int = 128
    norm_epsilon: float = 1e-6
    dtype: str = "float32"  # of matrix products; XLA on CPUs is slower in bfloat16


class Dense(nn.Module):
    """x W (+ b) over the last axis, as one product of two matrices: the fast form on CPUs."""

    features: int
    axes: tuple[str, str]
    dtype: str
    std: float | None = None  # of W at the start; default inputs^-0.5
    use_bias: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        inputs = x.shape[-1]
        std = inputs**-0.5 if self.std is None else self.std
        kernel = parameter(self, "kernel", self.axes, (inputs, self.features), std)
        rows = x.astype(self.dtype).reshape(-1, inputs)
        y = product(rows, kernel.astype(self.dtype))
        if self.has_variable("params", "lora_a"):  # beside a frozen kernel: see lora.py
            a: jax.Array = self.get_variable("params", "lora_a").astype(self.dtype)
            b: jax.Array = self.get_variable("params", "lora_b").astype(self.dtype)
            y = y + (rows @ a) @ b
        if self.use_bias:
            bias = parameter(self, "bias", self.axes[1:], (self.features,))
            y = y + bias.astype(self.dtype)
        return y.reshape(*x.shape[:-1], self.features)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: jax.Array, w: jax.Array, dtype: Any = None) -> jax.Array:
    """Returns x w, [N, M] in `dtype`, of x [N, K] and w [K, M]; its gradient is fast on CPUs.

    XLA's CPU product of a transposed matrix is slow; of a matrix that was transposed before, it
    is as fast as any: 1.1 to 1.3 times for the shapes of a T5-small.
    """
    return jnp.dot(x, w, preferred_element_type=dtype)


def _product_forward(x, w, dtype):
    return product(x, w, dtype), (x, w)


def _product_backward(dtype, saved, dy):
    x, w = saved
    dw = lax.platform_dependent(
        x,
        dy,
        cpu=lambda x, dy: lax.optimization_barrier(x.T) @ dy,
        default=lambda x, dy: x.T @ dy,
    )
    return (dy @ w.T).astype(x.dtype), dw.astype(w.dtype)


product.defvjp(_product_forward, _product_backward)


def parameter(
    module: nn.Module,
    name: str,
    axes: tuple[str, ...],
    shape: tuple[int, ...],
    std: float = 0.0,
    mean: float = 0.0,
) -> jax.Array:
    """A float32 parameter of `module` that knows its logical axes, and its spread at the start."""
    initializer = nn.initializers.normal(std) if std else nn.initializers.constant(mean)
    boxed = nn.with_logical_partitioning(initializer, axes)
    return cast(jax.Array, module.param(name, boxed, shape, jnp.float32))  # flax unboxes it


class RMSNorm(nn.Module):
    config: T5Config

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = parameter(self, "scale", ("norm",), (x.shape[-1],), mean=1.0)
        wide = x.astype(jnp.float32)
        square = jnp.mean(wide * wide, axis=-1, keepdims=True)
        return (wide * lax.rsqrt(square + self.config.norm_epsilon) * scale).astype(x.dtype)


class Attention(nn.Module):
    """Attention of several heads, without the usual 1/sqrt(K): T5 folds it into the initial q."""

    config: T5Config

    def setup(self):
        c = self.config
        inner = c.num_heads * c.d_kv
        project = functools.partial(Dense, inner, ("embed", "heads"), c.dtype)
        self.q = project(std=(c.d_model * c.d_kv) ** -0.5)
        self.k = project()
        self.v = project()
        self.o = Dense(c.d_model, ("heads", "embed"), c.dtype)

    def keys_values(self, x: jax.Array) -> KeysValues:
        return self._split(self.k(x)), self._split(self.v(x))

    def __call__(self, x: jax.Array, keys_values: KeysValues, bias: jax.Array) -> jax.Array:
        keys, values = keys_values
        query = self._split(self.q(x))
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, keys, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(scores + bias, axis=-1).astype(values.dtype)
        mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, values).transpose(0, 2, 1, 3)
        return self.o(mixed.reshape(*x.shape[:2], -1))

    def _split(self, x: jax.Array) -> jax.Array:
        c = self.config
        return x.reshape(*x.shape[:2], c.num_heads, c.d_kv).transpose(0, 2, 1, 3)


class FeedForward(nn.Module):
    config: T5Config

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        c = self.config
        wide = functools.partial(Dense, c.d_ff, ("embed", "mlp"), c.dtype)
        if c.gated:
            hidden = jax.nn.gelu(wide(name="wi_0")(x), approximate=True) * wide(name="wi_1")(x)
        else:
            hidden = jax.nn.relu(wide(name="wi")(x))
        return Dense(c.d_model, ("mlp", "embed"), c.dtype, name="wo")(hidden)


class EncoderLayer(nn.Module):
    config: T5Config

    def setup(self):
        self.attention_norm = RMSNorm(self.config)
        self.attention = Attention(self.config)
        self.ff_norm = RMSNorm(self.config)
        self.ff = FeedForward(self.config)

    def __call__(self, x: jax.Array, bias: jax.Array) -> jax.Array:
        y = self.attention_norm(x)
        x = x + self.attention(y, self.attention.keys_values(y), bias)
        return residual(x + self.ff(self.ff_norm(x)))


class DecoderLayer(nn.Module):
    config: T5Config

    def setup(self):
        self.attention_norm = RMSNorm(self.config)
        self.attention = Attention(self.config)
        self.cross_norm = RMSNorm(self.config)
        self.cross = Attention(self.config)
        self.ff_norm = RMSNorm(self.config)
        self.ff = FeedForward(self.config)

    def __call__(
        self,
        x: jax.Array,
        bias: jax.Array,
        memory: KeysValues,
        memory_bias: jax.Array,
        cache: KeysValues | None = None,
        position: jax.Array | int = 0,
    ) -> tuple[jax.Array, KeysValues]:
        """With a cache, `x` begins at `position`, [] or [B]; returns the cache with it, too."""
        y = self.attention_norm(x)
        keys_values = self.attention.keys_values(y)
        if cache is not None:
            write = functools.partial(_write, position=position)
            keys_values = jax.tree.map(write, cache, keys_values)
        x = x + self.attention(y, keys_values, bias)
        x = x + self.cross(self.cross_norm(x), memory, memory_bias)
        return residual(x + self.ff(self.ff_norm(x))), keys_values


class T5(nn.Module):
    config: T5Config

    def setup(self):
        c = self.config
        vocab, width = c.vocab_size, c.d_model
        self.embedding = parameter(self, "embedding", ("vocab", "embedding"), (vocab, width), 1.0)
        if not c.tied:
            self.head = parameter(self, "head", ("embed", "vocab"), (width, vocab), width**-0.5)
        relative = ("buckets", "heads"), (c.relative_buckets, c.num_heads), 0.1
        self.encoder_relative = parameter(self, "encoder_relative", *relative)
        self.decoder_relative = parameter(self, "decoder_relative", *relative)
        self.encoder = [EncoderLayer(c) for _ in range(c.encoder_layers)]
        self.decoder = [DecoderLayer(c) for _ in range(c.decoder_layers)]
        self.encoder_norm = RMSNorm(c)
        self.decoder_norm = RMSNorm(c)

    def encode(self, ids: jax.Array) -> jax.Array:
        """Returns the encoder's states [B, S, D] for ids [B, S]."""
        bias = self._relative(self.encoder_relative, ids.shape[1], bidirectional=True)
        bias = bias + padding_bias(ids)
        x = self._embed(ids)
        for layer in self.encoder:
            x = layer(x, bias)
        return self.encoder_norm(x)

    def memory(self, encoded: jax.Array) -> list[KeysValues]:
        """What each decoder layer attends to of the encoder's states [B, S, D]."""
        return [layer.cross.keys_values(encoded) for layer in self.decoder]

    def causal_bias(self, length: int) -> jax.Array:
        """Returns [1, H, L, L]: the decoder's relative bias, and MASKED for the future."""
        future = np.triu(np.full((length, length), MASKED, np.float32), 1)
        return self._relative(self.decoder_relative, length, bidirectional=False) + future

    def decode(
        self,
        ids: jax.Array,
        bias: jax.Array,
        memory: list[KeysValues],
        memory_bias: jax.Array,
        caches: list[KeysValues] | None = None,
        position: jax.Array | int = 0,
        only: jax.Array | None = None,
    ) -> tuple[jax.Array, list[KeysValues]]:
        """Returns the logits after ids [B, L] as float32 [B, L, V], and the caches with them.

        With caches, `position` is where the first of the L tokens stands, for all rows or [B].
        `only` [B] asks for the logits after one of them: [B, 1, V].
        """
        x = self._embed(ids)
        written = []
        for index, layer in enumerate(self.decoder):
            cache = caches[index] if caches else None
            x, cache = layer(x, bias, memory[index], memory_bias, cache, position)
            written.append(cache)
        if only is not None:
            x = jnp.take_along_axis(x, only[:, None, None], axis=1)
        return self._logits(self.decoder_norm(x)), written

    def _embed(self, ids: jax.Array) -> jax.Array:
        return residual(self.embedding[ids].astype(self.config.dtype))

    def _relative(self, table: jax.Array, length: int, bidirectional: bool) -> jax.Array:
        c = self.config
        position = np.arange(length)
        bucket = relative_bucket(
            position[None] - position[:, None],
            bidirectional,
            c.relative_buckets,
            c.relative_max_distance,
        )
        one_hot = np.eye(c.relative_buckets, dtype=np.float32)[bucket]  # its gradient is a product
        return jnp.einsum("qkb,bh->hqk", one_hot, table)[None]

    def _logits(self, x: jax.Array) -> jax.Array:
        c = self.config
        kernel = self.embedding.T * c.d_model**-0.5 if c.tied else self.head
        flat = x.reshape(-1, c.d_model)
        logits = product(flat, kernel.astype(c.dtype), jnp.float32)
        return logits.reshape(*x.shape[:2], c.vocab_size)


def _write(cache: jax.Array, new: jax.Array, position: jax.Array | int) -> jax.Array:
    """Puts new keys or values [B, H, L, K] into a cache from a position on, [] or [B]."""
    if jnp.ndim(position) == 0 or len(cache) == 1:
        position = jnp.reshape(position, ())
        return lax.dynamic_update_slice(cache, new, (0, 0, position, 0))
    return jax.vmap(lambda row, part, at: lax.dynamic_update_slice(row, part, (0, at, 0)))(
        cache, new, position
    )


def padding_bias(ids: jax.Array) -> jax.Array:
    """Returns [B, 1, 1, S]: MASKED where ids [B, S] is padding."""
    return jnp.where(ids == 0, MASKED, 0.0)[:, None, None, :].astype(jnp.float32)


def relative_bucket(
    distance: np.ndarray, bidirectional: bool, buckets: int, max_distance: int
) -> np.ndarray:
    """T5's bucket of key minus query position: one each when near, logarithmic when far."""
    offset = np.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    near = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / near) / np.log(max_distance / near)
    far = np.minimum(near + (ratio * (buckets - near)).astype(np.int32), buckets - 1)
    return offset + np.where(distance < near, distance, far)


def residual(x: jax.Array) -> jax.Array:
    """Keeps the residual stream split over the batch alone; without a mesh it does nothing."""
    return nn.with_logical_constraint(x, ("batch", None, None))
