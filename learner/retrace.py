"""Off-policy multi-step advantages: Retrace, V-trace, TD(lambda) and one-step in one function."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class OffPolicyReturns(NamedTuple):
    """Advantages and value targets of one trajectory, both [T]."""

    advantages: Array
    targets: Array


def off_policy_returns(
    r_t: Array,
    discount_t: Array,
    rho_t: Array,
    v_t: Array,
    v_tp1: Array,
    *,
    lambda_: float = 0.95,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> OffPolicyReturns:
    """Returns Retrace advantages and V-trace value targets of one trajectory.

    The advantages are `corrections` with first weight 1, the targets v_t + those with min(rho_bar,
    rho_t); see there for what else they are under other settings.

    Args:
      r_t: Reward after the action at time t, [T].
      discount_t: Discount after it, gamma included; 0 ends the episode, [T].
      rho_t: pi(a_t|s_t) / mu(a_t|s_t); 0 stops the trace at t, [T].
      v_t: Value of the state acted in, [T].
      v_tp1: Value of the state that followed, [T].
      lambda_: Decay of the trace.
      rho_bar: Truncation of the first weight, in the targets only.
      c_bar: Truncation of the trace's ratios.
    """
    td_t = r_t + discount_t * v_tp1 - v_t

    def correct(first_weight: float | None) -> Array:
        return corrections(
            td_t,
            discount_t,
            rho_t,
            lambda_=lambda_,
            rho_bar=rho_bar,
            c_bar=c_bar,
            first_weight=first_weight,
        )

    return OffPolicyReturns(correct(1.0), v_t + correct(None))


def corrections(
    td_t: Array,
    discount_t: Array,
    rho_t: Array,
    *,
    lambda_: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    first_weight: float | None = None,
) -> Array:
    """Returns sums of an episode's TD errors, corrected for the policy that acted, [T].

    With a first weight w, a multi-step advantage of the action that was taken. For w = 1 this is
    DistRL (arXiv 2410.14803), the double sum of A-RIDE, with c_i = lambda min(c_bar, rho_i):

      A_t = w sum_{k >= t} (prod_{i=t+1..k} discount_{i-1} c_i) td_k

    Without one, the first action's ratio counts too, and the sum is what V-trace adds to a value
    (Espeholt et al. 2018, eq. 1, with the lambda of remark 2), w_k = min(rho_bar, rho_k):

      vs_t - v_t = sum_{k >= t} (prod_{i=t..k-1} discount_i c_i) w_k td_k

    | first_weight | lambda_ | rho_t | |
    |---|---|---|---|
    | 1 | any | pi / mu | Retrace |
    | None | 1 | pi / mu | V-trace; its policy gradient takes min(rho_bar, rho_t) A_t of lambda 1 |
    | 1 | any | 1 | generalised advantage estimation; v_t + A_t is the TD(lambda) return |
    | 1 | 0 | any | the one-step error |

    Nothing crosses a discount of 0, so trajectories may be laid end to end in one array.
    """
    c_t = lambda_ * jnp.minimum(c_bar, rho_t)
    if first_weight is None:
        weighted, c_of_trace = jnp.minimum(rho_bar, rho_t) * td_t, c_t
    else:
        # The trace into t + 1 carries the ratio of the action there; nothing follows the last step.
        weighted = first_weight * td_t
        c_of_trace = jnp.concatenate([c_t[1:], jnp.zeros_like(c_t[:1])])

    def backward(sum_tp1: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        error, trace = inputs
        sum_t = error + trace * sum_tp1
        return sum_t, sum_t

    _, sums = jax.lax.scan(
        backward, jnp.zeros_like(td_t[0]), (weighted, discount_t * c_of_trace), reverse=True
    )
    return sums


def outcome_labels(reward: Array, discount: Array) -> Array:
    """Returns the Monte-Carlo return of each of N steps, [N]; a discount of 0 ends an episode."""

    def backward(following: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        r, gamma = inputs
        label = r + gamma * following
        return label, label

    _, labels = jax.lax.scan(backward, jnp.zeros(()), (reward, discount), reverse=True)
    return labels
