"""From logits to the distribution that is really sampled from: one function for all who need it."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from common.errors import ConfigError
from common.models.t5 import MASKED

LOG_FLOOR = -20.0  # nats; stands for log 0, and is where the learner cuts importance ratios


@dataclasses.dataclass(frozen=True)
class SamplingConfig:
    """How tokens are drawn.

    Attributes:
      temperature: Divides the logits. 0 takes the likeliest token; log-probabilities are then
        those at 1.
      top_k: Only so many likeliest tokens are drawn; 0 is no limit.
      top_p: Only the fewest likeliest tokens that together are this likely are drawn (Holtzman et
        al. 2020); 1 is all.
      grammar: Only what leads to an action of the grammar is drawn.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    grammar: bool = False

    def __post_init__(self) -> None:
        def require(holds: bool, name: str, sentence: str) -> None:
            if not holds:
                raise ConfigError(f"sampling.{name} {sentence}, not {getattr(self, name)!r}.")

        number = (float, int)
        temperature, top_p = self.temperature, self.top_p
        require(
            type(temperature) in number and 0 <= temperature < math.inf,
            "temperature",
            "must be a number of 0 or more",
        )
        require(
            type(self.top_k) is int and self.top_k >= 0, "top_k", "must be an integer of 0 or more"
        )
        require(type(top_p) in number and 0 < top_p <= 1, "top_p", "must be above 0 and at most 1")
        require(type(self.grammar) is bool, "grammar", "must be true or false")


FREE = SamplingConfig()


def restrict(
    logits: jax.Array, sampling: SamplingConfig, allowed: jax.Array | None = None
) -> jax.Array:
    """Returns the logits of the distribution that is sampled from.

    The order is that of Hugging Face: temperature, grammar, top_k, and top_p of what those left.
    Equally likely tokens at an edge stay all. An edge is where float32's rounding decides, so that
    two computations of nearly equal logits may keep different sets there.

    Args:
      logits: As the model gives them, float32 [..., V].
      sampling: The settings.
      allowed: What the grammar allows, bool [..., V]; with `sampling.grammar` alone.

    Returns:
      float32 [..., V]; MASKED where a token is never drawn.
    """
    if sampling.grammar != (allowed is not None):
        raise ValueError("an automaton goes with sampling.grammar, and the other way round")
    kept = logits / (sampling.temperature or 1.0)
    if allowed is not None:
        kept = jnp.where(allowed, kept, MASKED)
    if sampling.top_k or sampling.top_p < 1:
        kept = jnp.where(kept >= _edge(lax.stop_gradient(kept), sampling), kept, MASKED)
    return kept


def _edge(logits: jax.Array, sampling: SamplingConfig) -> jax.Array:
    """Returns the lowest logit [..., 1] that top_k and top_p keep."""
    vocab = logits.shape[-1]
    ordered = lax.top_k(logits, min(sampling.top_k or vocab, vocab))[0]
    probabilities = jax.nn.softmax(ordered, axis=-1)
    likelier = jnp.cumsum(probabilities, axis=-1) - probabilities
    inside = likelier < sampling.top_p
    return jnp.min(jnp.where(inside, ordered, jnp.inf), axis=-1, keepdims=True)
