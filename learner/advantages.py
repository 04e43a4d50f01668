"""How good each action was, in the ways of the published algorithms, from one set of values."""

from __future__ import annotations

from jax import Array

from learner.packing import Batch
from learner.retrace import off_policy_returns, outcome_labels

KINDS = ("retrace", "return", "digirl", "released", "filtered")
RELEASED_OFFSET = 0.05  # taken from every reward, in DistRL's published code as in DigiRL's


def advantages(
    kind: str,
    batch: Batch,
    retrace: Array,
    rho: Array,
    v_t: Array,
    v_tp1: Array,
    *,
    gamma: float,
    lambda_: float,
    penalties: Array,
) -> Array:
    """Returns the advantage of each step, [N].

    Args:
      kind: `retrace`: as it is given (with lambda 1, times min(1, rho), V-trace's, so IMPALA's).
        `return`: the Monte-Carlo return less the value (REINFORCE with a baseline).
        `digirl`: the step advantage of DigiRL (Bai et al. 2024, section 4.2),
        lambda^(H - h) r_H + (1 - lambda^(H - h) r_H) (V(s') + r - V(s)).
        `released`: what DistRL's published code computes: its Retrace (V-trace's value target less
        the value) of rewards r + return - .05 + penalty.
        `filtered`: the episode's outcome.
      batch: The steps.
      retrace: Retrace's advantages, [N].
      rho: Ratios of the actions, [N].
      v_t: Values of the states acted in, [N].
      v_tp1: Values of those that followed, [N].
      gamma: Discount.
      lambda_: Of the step advantage.
      penalties: Of invalid and repeated actions, 0 or more, [N].
    """
    discount = gamma * batch.discount
    if kind == "return":
        return outcome_labels(batch.reward, discount) - v_t
    if kind == "digirl":
        done = outcome_labels(batch.reward, lambda_ * batch.discount)
        return done + (1 - done) * (batch.reward + batch.discount * v_tp1 - v_t)
    if kind == "released":
        reward = batch.reward + outcome_labels(batch.reward, discount) - RELEASED_OFFSET - penalties
        found = off_policy_returns(reward, discount, rho, v_t, v_tp1, lambda_=1.0)
        return found.targets - v_t
    return batch.outcome if kind == "filtered" else retrace
