"""The critic: state values and the instruction's value, in a network of its own.

A value head on the policy's trunk stayed at chance or pulled the policy down; a network of its own
with its own optimizer reaches an AUC above .9 within 640 episodes.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from common.types import EOS_ID
from learner.packing import Batch


class Values(NamedTuple):
    """Logits of Pr(success), in fp32."""

    state: Array  # [2, N], two heads; their minimum is the value
    instruction: Array  # [N], V_traj(c), from the first prompt only

    def pessimistic(self) -> Array:
        """The smaller of the two state values, [N], in 0..1."""
        return jax.nn.sigmoid(self.state.min(0))


class Critic(nn.Module):
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
        progress = jnp.stack([batch.time, batch.time**2, batch.last_invalid], -1)
        x = jnp.concatenate([goal, prompt, screen, asked, progress], -1)
        x = nn.relu(nn.Dense(self.hidden)(x))
        x = nn.relu(nn.Dense(self.hidden)(x))
        small = nn.initializers.normal(0.01)  # values start at one half
        state = nn.Dense(2, kernel_init=small, name="state")(x)
        y = nn.relu(nn.Dense(64, name="instruction_hidden")(goal))
        instruction = nn.Dense(1, kernel_init=small, name="instruction")(y)
        return Values(state.T, instruction[:, 0])

    def _bag(self, name: str, ids: Array) -> Array:
        """Sum of token embeddings over the root of their number, [N, embedding]."""
        table = self.param(name, nn.initializers.normal(0.3), (self.vocab_size, self.embedding))
        words = (ids > EOS_ID).astype(jnp.float32)
        # Counting first keeps the gradient a matrix product instead of a scatter into the table.
        rows = jnp.arange(ids.shape[0])[:, None]
        counts = jnp.zeros((ids.shape[0], self.vocab_size)).at[rows, ids].add(words)
        return counts @ table / jnp.sqrt(words.sum(-1, keepdims=True) + 1e-6)


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
