"""The policy's losses: what each action's log-probability is weighted with, and where to look."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from common.errors import ConfigError
from learner.advantages import KINDS
from learner.packing import Batch


@dataclasses.dataclass(frozen=True)
class PolicyLossConfig:
    """A-RIDE's policy loss. Values without a source are those of this project's own runs."""

    advantage: str = "retrace"  # or another of advantages.KINDS
    binary: bool = False  # weight 1 for what is better than `threshold`, 0 for the rest
    threshold: float = 0.0
    imitate: bool = False  # without importance ratios
    rho_bar: float = 1.0
    scale_floor: float = 0.1  # advantages are divided by max(std, this); the mean stays
    positive_clip: float = 3.0
    negative_clip: float = 0.3  # more of it doubles the entropy and ends in collapse
    negative_ratio: float = 0.8  # a token that became this much rarer is pushed down no more
    negative_probability: float = 0.1  # and one that is rarer than this
    penalty: str = "mask"  # invalid actions: "mask" never imitates them, "reward" shapes A, "none"
    invalid_reward: float = 0.1  # for "reward": of an invalid action (released code: 1)
    repeat_reward: float = 0.04  # for "reward": of each repetition, up to three (released: 0.4)
    entropy: float = 0.0  # beta of the exact token entropy

    def __post_init__(self) -> None:
        for field, allowed in (
            ("advantage", KINDS),
            ("penalty", ("mask", "reward", "none")),
        ):
            if getattr(self, field) not in allowed:
                raise ConfigError(
                    f"{field} must be one of {', '.join(allowed)}, not {getattr(self, field)!r}"
                )


class PolicyLoss(NamedTuple):
    """The loss and what to watch about it; scalars."""

    loss: Array
    entropy: Array  # nats a token, over real tokens
    positive: Array  # share of steps whose weight is above 0
    negative: Array
    log_prob: Array  # mean log-probability of a token


def penalties(batch: Batch, config: PolicyLossConfig) -> Array:
    """What is taken from the reward of invalid and repeated actions, [N]."""
    repeats = jnp.minimum(batch.repeats, 3)
    return config.invalid_reward * batch.invalid + config.repeat_reward * repeats


def action_weights(advantages: Array, batch: Batch, config: PolicyLossConfig) -> Array:
    """Turns advantages into the weights of the actions' log-probabilities, [N].

    Real-valued with a small negative side, or 1 above a threshold. Where an action was invalid,
    changed nothing or repeated the one before, its positive weight is 0: it is never imitated,
    which was most of the gain in our runs, while the same penalty in the reward hurt.
    """
    if config.penalty == "reward":
        advantages = advantages - penalties(batch, config)
    if config.binary:
        weights = (advantages > config.threshold).astype(jnp.float32)
    else:
        count = jnp.maximum(batch.mask.sum(), 1.0)
        mean = (advantages * batch.mask).sum() / count
        variance = (jnp.square(advantages - mean) * batch.mask).sum() / count
        weights = advantages / jnp.maximum(jnp.sqrt(variance), config.scale_floor)
        weights = jnp.clip(weights, -config.negative_clip, config.positive_clip)
    if config.penalty == "mask":
        bad = (batch.invalid > 0) | (batch.repeats > 0)
        weights = jnp.where(bad, 0.0, weights)
    return weights * batch.mask * batch.importance


def policy_loss(
    log_probs: Array,
    behaviour_log_probs: Array,
    entropy: Array,
    weights: Array,
    batch: Batch,
    config: PolicyLossConfig,
) -> PolicyLoss:
    """Truncated importance-weighted policy gradient of A-RIDE (DistRL, eq. 1), per token.

    The positive side weights an action with min(rho_bar, rho); the negative side weights each of
    its tokens, and only those that are still likely under both policies.

    Args:
      log_probs: log pi of each emitted token under the sampler's settings, [N, A]; 0 on padding.
      behaviour_log_probs: log mu of each, [N, A].
      entropy: Exact entropy of the distribution at each of those tokens, [N, A]; 0 on padding.
      weights: From `action_weights`, [N].
      batch: The batch.
      config: Clips.
    """
    real = (batch.action_ids > 0) * batch.mask[:, None]
    fixed = jax.lax.stop_gradient(log_probs)
    log_ratio = (fixed - behaviour_log_probs) * real
    if config.imitate:
        positive = jnp.ones_like(log_probs)
    else:
        action_ratio = jnp.exp(jnp.clip(log_ratio.sum(-1, keepdims=True), -20.0, 20.0))
        positive = jnp.minimum(action_ratio, config.rho_bar)
    ratio = jnp.exp(jnp.clip(log_ratio, -20.0, 20.0))
    likely = (ratio > config.negative_ratio) & (jnp.exp(fixed) > config.negative_probability)
    negative = jnp.minimum(ratio, 1.0) * likely
    factor = jnp.where(weights[:, None] > 0, positive, negative) * weights[:, None] * real
    tokens = jnp.maximum(real.sum(), 1.0)
    mean_entropy = (entropy * real).sum() / tokens
    steps = jnp.maximum(batch.mask.sum(), 1.0)
    return PolicyLoss(
        loss=-(factor * log_probs).sum() / tokens - config.entropy * mean_entropy,
        entropy=mean_entropy,
        positive=(weights > 0).sum() / steps,
        negative=(weights < 0).sum() / steps,
        log_prob=(fixed * real).sum() / tokens,
    )


def grounding(attention: Array, prompt_ids: Array, touched: Array) -> Array:
    """Asks that some token of the prompt looks at what the action taps.

    What is tapped stands in the action, but the actions' likelihood has hardly a gradient towards
    it: where to look and how to say what is seen there are a product, and both are small at first.
    One token that looks is enough, so the others stay free.

    Args:
      attention: Of prompt tokens to image tokens, [N, S, I]; rows sum to 1.
      prompt_ids: [N, S]; 0 is padding.
      touched: [N] the image token tapped; -1 for other actions.

    Returns:
      Mean over the taps of -log(1 - prod (1 - a)), a the attention of each token, in nats.
    """
    at = jnp.take_along_axis(attention, jnp.maximum(touched, 0)[:, None, None], axis=2)[..., 0]
    missed = (jnp.log1p(-jnp.minimum(at, 1 - 1e-6)) * (prompt_ids > 0)).sum(axis=1)
    tapped = touched >= 0
    seen = jnp.log(-jnp.expm1(missed) + 1e-6)
    return -(seen * tapped).sum() / jnp.maximum(tapped.sum(), 1)
