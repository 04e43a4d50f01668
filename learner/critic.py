"""The critic: state values and the instruction's value, in a network of its own.

A value head on the policy's trunk stayed at chance or pulled the policy down; a network of its own
with its own optimizer reaches an AUC above .9 within 640 episodes. It may learn to read by itself,
or use the encodings of a text encoder that its gradient does not reach.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from common.errors import ConfigError
from common.models import autoui
from common.types import EOS_ID, PAD_ID
from learner.packing import Batch

KINDS = ("bag", "roberta", "t5")


@dataclasses.dataclass(frozen=True)
class CriticConfig:
    """Which critic, and who reads the prompts for it.

    Attributes:
      kind: "bag" learns embeddings of its own; "roberta" is DistRL's, on a frozen RoBERTa's
        encodings; "t5" reads with the policy's encoder as it is at the time.
      roberta: For that one: folder with config.json, model.safetensors and tokenizer.json.
      hidden: Width of the layers on the encodings.
    """

    kind: str = "bag"
    roberta: str = ""
    hidden: int = 256

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"critic.kind must be one of {', '.join(KINDS)}, not {self.kind!r}.")
        if self.hidden < 1:
            raise ConfigError(f"critic.hidden must be positive, not {self.hidden}.")


class Values(NamedTuple):
    """Logits of Pr(success), in fp32."""

    state: Array  # [2, N], two heads; their minimum is the value
    instruction: Array  # [N], V_traj(c), from the first prompt only

    def pessimistic(self) -> Array:
        """The smaller of the two state values, [N], in 0..1."""
        return jax.nn.sigmoid(self.state.min(0))


class BagCritic(nn.Module):
    """Bags of goal and prompt tokens, the pooled screen, and their product."""

    vocab_size: int
    embedding: int = 48
    hidden: int = 128

    @nn.compact
    def __call__(self, batch: Batch) -> Values:
        goal = self._bag("goal_embedding", batch.goal_ids)
        prompt = self._bag("prompt_embedding", batch.prompt_ids)
        screen = nn.relu(nn.Dense(96, name="screen")(_pool(batch.features)))
        asked = screen * nn.Dense(96, name="goal_gate")(goal)
        x = jnp.concatenate([goal, prompt, screen, asked, _progress(batch)], -1)
        x = nn.relu(nn.Dense(self.hidden)(x))
        x = nn.relu(nn.Dense(self.hidden)(x))
        y = nn.relu(nn.Dense(64, name="instruction_hidden")(goal))
        return _heads(x, y)

    def _bag(self, name: str, ids: Array) -> Array:
        """Sum of token embeddings over the root of their number, [N, embedding]."""
        table = self.param(name, nn.initializers.normal(0.3), (self.vocab_size, self.embedding))
        words = (ids > EOS_ID).astype(jnp.float32)
        # Counting first keeps the gradient a matrix product instead of a scatter into the table.
        rows = jnp.arange(ids.shape[0])[:, None]
        counts = jnp.zeros((ids.shape[0], self.vocab_size)).at[rows, ids].add(words)
        return counts @ table / jnp.sqrt(words.sum(-1, keepdims=True) + 1e-6)


class EncodedCritic(nn.Module):
    """The encoded prompt with the previous and the current screen (DistRL; DigiRL's critic).

    How far the episode is, which decides at its end, is ours.
    """

    hidden: int

    @nn.compact
    def __call__(self, batch: Batch) -> Values:
        begins = batch.time == 0
        # Frozen encodings have a few numbers that are far larger than the rest.
        text = nn.LayerNorm(use_bias=False, use_scale=False)(batch.texts)
        screen = _pool(batch.features)
        previous = jnp.where(begins[:, None], screen, jnp.roll(screen, 1, axis=0))
        x = jnp.concatenate([text, previous, screen, _progress(batch)], -1)
        x = nn.relu(nn.Dense(self.hidden)(x))
        x = nn.relu(nn.Dense(self.hidden)(x))
        rows = jnp.arange(batch.time.shape[0])
        goal = text[jax.lax.cummax(jnp.where(begins, rows, 0))]  # of the episode's first prompt
        y = nn.relu(nn.Dense(self.hidden, name="instruction_hidden")(goal))
        return _heads(x, y)


def make_critic(config: CriticConfig, vocab_size: int) -> BagCritic | EncodedCritic:
    return BagCritic(vocab_size) if config.kind == "bag" else EncodedCritic(config.hidden)


def read_prompts(params: autoui.Params, model: autoui.AutoUIConfig, ids: Array) -> Array:
    """Returns the mean of the policy's encoder's states over each prompt, without a gradient.

    Args:
      params: Of the policy.
      model: Their shape.
      ids: [N, S]; 0 is padding.

    Returns:
      float32 [N, D], for `Batch.texts`.
    """
    states = autoui.AutoUI(model).apply(
        {"params": jax.lax.stop_gradient(params)}, ids, method=lambda m, i: m.t5.encode(i)
    )
    words = (ids != PAD_ID).astype(jnp.float32)[..., None]
    total = (cast(Array, states).astype(jnp.float32) * words).sum(1)
    return total / jnp.maximum(words.sum(1), 1.0)


def _heads(x: Array, y: Array) -> Values:
    """Two heads for the state on `x` and one for the instruction on `y`."""
    small = nn.initializers.normal(0.01)  # values start at one half
    state = nn.Dense(2, kernel_init=small, name="state")(x)
    instruction = nn.Dense(1, kernel_init=small, name="instruction")(y)
    return Values(state.T, instruction[:, 0])


def _progress(batch: Batch) -> Array:
    return jnp.stack([batch.time, batch.time**2, batch.last_invalid], -1)


def _pool(features: Array) -> Array:
    """Means of each image token's colours, or the features themselves where they are floats."""
    if features.dtype != jnp.uint8:
        return features.reshape(features.shape[0], -1)
    x = features.astype(jnp.float32) / 127.5 - 1.0
    return x.reshape(*x.shape[:2], -1, 3).mean(2).reshape(x.shape[0], -1)


def value_loss(values: Values, batch: Batch, targets: Array, smoothing: float) -> Array:
    """Binary cross-entropy of the state values on `targets` and of V_traj on the outcome.

    Args:
      values: Of the batch.
      batch: With `known` 0 on padding and where the outcome is unknown.
      targets: [N] in 0..1.
      smoothing: Moves labels this far towards one half, so that no value saturates.
    """

    def entropy(logits: Array, labels: Array) -> Array:
        labels = labels * (1 - smoothing) + smoothing / 2
        return jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))

    first = batch.known * (batch.time == 0)  # or long episodes, which fail, would count more

    def mean(losses: Array, weight: Array) -> Array:
        return (losses * weight).sum() / jnp.maximum(weight.sum(), 1.0)

    state = mean(entropy(values.state, targets[None]).mean(0), batch.known)
    return state + 0.3 * mean(entropy(values.instruction, batch.outcome), first)
