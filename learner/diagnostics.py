"""Numbers by which a person sees whether learning is healthy; docs/metrics.md explains them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from learner.packing import Batch

BINS = 10  # of the values' calibration


def off_policy(rho: Array, rho_bar: float, batch: Batch) -> dict[str, Array]:
    """Returns how far the replayed actions are from today's policy, by their ratios [N]."""
    real = batch.mask > 0
    count = jnp.maximum(real.sum(), 1)
    ordered = jnp.sort(jnp.where(real, rho, jnp.inf))
    at = jnp.minimum((0.95 * count).astype(jnp.int32), count - 1)
    rho = jnp.where(real, rho, 0.0)
    return {
        "offpolicy/rho_mean": jnp.minimum(rho, rho_bar).sum() / count,
        "offpolicy/rho_p95": jnp.where(real.any(), ordered[at], 0.0),
        "offpolicy/truncated_share": (rho > rho_bar).sum() / count,
        "offpolicy/ess": jnp.square(rho.sum()) / jnp.maximum(jnp.square(rho).sum(), 1e-9) / count,
    }


def values(v_t: Array, instruction: Array, advantages: Array, batch: Batch) -> dict[str, Array]:
    """Returns whether values [N] are true to the outcomes, and what the advantages [N] are."""
    known = batch.mask * batch.known
    count = jnp.maximum(batch.mask.sum(), 1.0)
    return {
        "advantage/mean": (advantages * batch.mask).sum() / count,
        "value/mean": (v_t * batch.mask).sum() / count,
        "value/outcome_mean": (batch.outcome * batch.mask).sum() / count,
        "value/calibration_error": calibration_error(v_t, batch.outcome, known),
        "value/instruction_calibration_error": calibration_error(
            jax.nn.sigmoid(instruction), batch.outcome, known
        ),
        "batch/padding_share": 1 - batch.mask.sum() / batch.mask.shape[0],
        "batch/repeated_share": ((batch.repeats > 0) * batch.mask).sum() / count,
    }


def calibration_error(probabilities: Array, outcomes: Array, weights: Array) -> Array:
    """Expected calibration error over equal bins of probability (Guo et al. 2017); all [N]."""
    which = jnp.clip((probabilities * BINS).astype(jnp.int32), 0, BINS - 1)
    gaps = jax.ops.segment_sum((probabilities - outcomes) * weights, which, BINS)
    return jnp.abs(gaps).sum() / jnp.maximum(weights.sum(), 1.0)
