"""Auto-UI: a T5 whose encoder's states are mixed with the screen before it decodes an action.

Zhang and Zhang, "You Only Look at Screens" (2023), with the T5 v1.1 of DigiRL.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from common.errors import ConfigError
from common.models import t5
from common.models.automaton import Automaton
from common.models.distribution import (
    FREE,
    LOG_FLOOR,
    SamplingConfig,
    log_prob_and_entropy,
    restrict,
)
from common.types import PAD_ID

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class AutoUIConfig(t5.T5Config):
    """Shape of the policy network.

    With `image_grid`, features are uint8 pixels of patches in rows; they are normalised and know
    where they stand. Without it they are taken as an image encoder made them, and of several tokens
    those that are 0 throughout are left out.
    """

    image_dim: int = 108
    image_tokens: int = 144
    image_grid: tuple[int, int] | None = (16, 9)  # rows, columns
    prompt_length: int = 40
    action_length: int = 18

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (type(value) is not int or value < 1):
                raise ConfigError(f"{field.name} is {value!r}; it must be a positive integer.")
        if self.dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"dtype is {self.dtype!r}; it must be float32 or bfloat16.")
        if self.image_grid and self.image_grid[0] * self.image_grid[1] != self.image_tokens:
            raise ConfigError(
                f"image_grid {self.image_grid} does not hold image_tokens = {self.image_tokens}."
            )

    @property
    def features_dtype(self) -> str:
        """Of the features: pixels are bytes."""
        return "uint8" if self.image_grid else "float32"

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` takes; JSON can hold it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AutoUIConfig:
        """Raises ConfigError for a field that does not exist or a value out of range."""
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ConfigError(f"The model's config has no field {', '.join(unknown)}.")
        grid = values.get("image_grid", cls.image_grid)
        return cls(**{**values, "image_grid": tuple(grid) if grid else None})


def _flan_t5(d_model: int, num_heads: int, d_ff: int, layers: int) -> AutoUIConfig:
    return AutoUIConfig(
        vocab_size=32128,
        d_model=d_model,
        num_heads=num_heads,
        d_kv=64,
        d_ff=d_ff,
        encoder_layers=layers,
        decoder_layers=layers,
        image_dim=1408,  # Auto-UI: the pooled output of BLIP-2's ViT-g
        image_tokens=1,
        image_grid=None,
        prompt_length=512,  # DigiRL, as the 128
        action_length=128,
    )


PRESETS = {
    "tiny": AutoUIConfig(),  # 0.5 M parameters: learns the simulated phone on one core
    "small": _flan_t5(512, 6, 1024, 8),
    "base": _flan_t5(768, 12, 2048, 12),
    "large": _flan_t5(1024, 16, 2816, 24),
    "xl": _flan_t5(2048, 32, 5120, 24),
}


class ImageTokens(nn.Module):
    """Features [B, N, C] to image tokens [B, N, D]."""

    config: AutoUIConfig

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        c = self.config
        project = t5.Dense(c.d_model, ("image", "embed"), c.dtype, use_bias=True, name="dense")
        if c.image_grid is None:
            return project(features)
        rows, columns = c.image_grid
        # At a spread of 1, where a patch is outshouts what it shows: one start in three then never
        # learned to find an icon.
        row = t5.parameter(self, "row", ("row", "embed"), (rows, c.d_model), 0.5)
        column = t5.parameter(self, "column", ("column", "embed"), (columns, c.d_model), 0.5)
        x = project(features.astype(c.dtype) / 127.5 - 1).astype(jnp.float32)
        # A flat patch must not be blown up to the size of a busy one, hence the .05.
        x = x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 0.05)
        where = (row[:, None] + column[None]).reshape(1, c.image_tokens, c.d_model)
        return (x + where).astype(c.dtype)


class Fusion(nn.Module):
    """One-head attention from text to image tokens, and a gate between the two.

    The products with W_k and W_v are moved to the text's side, of which there is less here:
    q . (W_k i + b_k) = (q W_k^T) . i + constant, and the softmax drops the constant, so that b_k
    is no parameter; the weights sum to one, so that W_v and b_v may follow the mixing.
    """

    config: AutoUIConfig

    @nn.compact
    def __call__(self, text: jax.Array, image: jax.Array, bias: jax.Array | float) -> jax.Array:
        c = self.config
        axes = ("embed", "embed_out")

        def dense(name: str) -> t5.Dense:
            return t5.Dense(c.d_model, axes, c.dtype, use_bias=True, name=name)

        to_keys = t5.parameter(self, "k", axes, (c.d_model, c.d_model), c.d_model**-0.5)
        query = dense("q")(text).reshape(-1, c.d_model) @ to_keys.T.astype(c.dtype)
        scores = jnp.einsum(
            "bqd,bkd->bqk", query.reshape(text.shape), image, preferred_element_type=jnp.float32
        )
        weights = jax.nn.softmax(scores * c.d_model**-0.5 + bias, axis=-1).astype(c.dtype)
        self.sow("intermediates", "attention", weights)  # kept where `attention` asks for it
        seen = dense("o")(dense("v")(jnp.einsum("bqk,bkd->bqd", weights, image)))
        gate = jax.nn.sigmoid(dense("gate")(jnp.concatenate([text, seen], axis=-1)))
        return (1 - gate) * text + gate * seen


class AutoUI(nn.Module):
    config: AutoUIConfig

    def setup(self):
        self.t5 = t5.T5(self.config)
        self.image = ImageTokens(self.config)
        self.fusion = Fusion(self.config)

    def encode(self, prompt_ids: jax.Array, features: jax.Array) -> jax.Array:
        """Returns what the decoder attends to, [B, S, D]."""
        text, image = self.t5.encode(prompt_ids), self.image(features)
        return t5.residual(self.fusion(text, image, self._image_bias(features)))

    def _image_bias(self, features: jax.Array) -> jax.Array | float:
        """MASKED, [B, 1, N], where an encoder left a token out: all of its features are 0."""
        if self.config.image_grid is not None or self.config.image_tokens == 1:
            return 0.0  # a black patch is no padding, and a single token is always there
        return jnp.where((features == 0).all(-1), t5.MASKED, 0.0)[:, None]

    def begin(self, prompt_ids: jax.Array, features: jax.Array, length: int):
        """Returns all that decoding `length` tokens needs and that no token changes."""
        memory = self.t5.memory(self.encode(prompt_ids, features))
        return self.t5.causal_bias(length), memory, t5.padding_bias(prompt_ids)

    def step(self, token_ids, bias, memory, memory_bias, caches, position):
        """Returns the logits [B, V] after one more token [B], and the caches."""
        row = lax.dynamic_slice_in_dim(bias, position, 1, axis=2)
        logits, caches = self.t5.decode(
            token_ids[:, None], row, memory, memory_bias, caches, position
        )
        return logits[:, 0], caches

    def step_block(self, token_ids, lengths, bias, memory, memory_bias, caches, positions):
        """As `step` after several more tokens: `lengths` [B] of token_ids [B, L].

        They begin at `positions` [B]; what is beyond a row's length is overwritten by later steps.
        """
        rows = positions[:, None] + jnp.arange(token_ids.shape[1])
        logits, caches = self.t5.decode(
            token_ids,
            bias[0][:, rows].swapaxes(0, 1),
            memory,
            memory_bias,
            caches,
            positions,
            only=lengths - 1,
        )
        return logits[:, 0], caches

    def __call__(
        self, prompt_ids: jax.Array, features: jax.Array, action_ids: jax.Array
    ) -> jax.Array:
        """Returns the logits of each action token given those before it, float32 [B, A, V]."""
        decoder = self.begin(prompt_ids, features, action_ids.shape[1])
        previous = jnp.pad(action_ids[:, :-1], ((0, 0), (1, 0)))  # padding starts the decoder
        return self.t5.decode(previous, *decoder)[0]


def boxed_init(config: AutoUIConfig, key: jax.Array) -> Params:
    """As `init`, but each leaf is boxed with its logical axes; for `jax.eval_shape`."""
    ids = jnp.zeros((1, 1), jnp.int32)
    features = jnp.zeros((1, config.image_tokens, config.image_dim), config.features_dtype)
    with nn.logical_axis_rules(()):  # one row can't be split over a mesh
        return AutoUI(config).init(key, ids, features, ids)["params"]


def init(config: AutoUIConfig, key: jax.Array) -> Params:
    """Returns fresh float32 parameters as a plain nested dict."""
    return jax.jit(lambda k: nn.meta.unbox(boxed_init(config, k)))(key)


def logits(
    params: Params,
    config: AutoUIConfig,
    prompt_ids: jax.Array,
    features: jax.Array,
    action_ids: jax.Array,
) -> jax.Array:
    """Returns the logits of each action token given those before it, float32 [B, A, V]."""
    apply = AutoUI(config).apply
    return cast(jax.Array, apply({"params": params}, prompt_ids, features, action_ids))


def attention(
    params: Params, config: AutoUIConfig, prompt_ids: jax.Array, features: jax.Array
) -> jax.Array:
    """Returns how the tokens of the prompts attend to the image's, [B, S, N]; rows sum to 1.

    Beside `logits` of the same inputs this costs little: XLA computes the encoder once.
    """
    _, kept = AutoUI(config).apply(
        {"params": params},
        prompt_ids,
        features,
        method=AutoUI.encode,
        mutable=["intermediates"],
    )
    return cast(jax.Array, kept["intermediates"]["fusion"]["attention"][0])


class TokenStats(NamedTuple):
    """How likely the policy is to emit given actions, token by token, [B, A]; 0 on padding.

    Attributes:
      log_probs: Of each token in the distribution that it would be drawn from, in nats, float32.
      entropy: Of that distribution, in nats, float32.
      outside: Bool, the token is not in that distribution: it was drawn by other parameters, which
        had it among their likeliest, or written by an expert. Its log-probability is given as
        LOG_FLOOR, without a gradient.
    """

    log_probs: jax.Array
    entropy: jax.Array
    outside: jax.Array


def token_stats(
    params: Params,
    config: AutoUIConfig,
    prompt_ids: jax.Array,
    features: jax.Array,
    action_ids: jax.Array,
    sampling: SamplingConfig = FREE,
    automaton: Automaton | None = None,
) -> TokenStats:
    """Returns how likely the policy is to emit given actions.

    Args:
      params: From `init`.
      config: Their shape.
      prompt_ids: [B, S] int32.
      features: [B, N, C].
      action_ids: [B, A] int32; 0 is padding.
      sampling: The sampler's settings.
      automaton: The sampler's; for decoding by the grammar.
    """
    raw = logits(params, config, prompt_ids, features, action_ids)
    allowed = automaton.allowed_along(action_ids) if automaton else None
    log_probs, entropy = (
        flat.reshape(action_ids.shape)
        for flat in log_prob_and_entropy(
            restrict(raw, sampling, allowed).reshape(-1, config.vocab_size), action_ids.reshape(-1)
        )
    )
    emitted = action_ids != PAD_ID
    outside = emitted & (log_probs < t5.MASKED / 2)
    return TokenStats(
        jnp.where(emitted, jnp.where(outside, LOG_FLOOR, log_probs), 0.0),
        jnp.where(emitted, entropy, 0.0),
        outside,
    )
