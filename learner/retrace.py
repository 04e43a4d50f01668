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

    DistRL (arXiv 2410.14803), the double sum of A-RIDE, with c_i = lambda min(c_bar, rho_i):

      A_t = sum_{k >= t} (prod_{i=t+1..k} discount_{i-1} c_i) [r_k + discount_k v_{k+1} - v_k]

    The first error has weight 1: A_t is a multi-step advantage of the action that was taken. With
    weight min(rho_bar, rho_t) on the whole sum it is V-trace's target (Espeholt et al. 2018,
    eq. 1): vs_t = v_t + min(rho_bar, rho_t) A_t. lambda 0 gives one-step errors; rho 1 TD(lambda).

    Nothing crosses a discount of 0, so trajectories may be laid end to end in one array.

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
    c_t = lambda_ * jnp.minimum(c_bar, rho_t)
    # The trace into t + 1 leaves t through its discount; nothing follows the last step.
    trace_t = discount_t * jnp.concatenate([c_t[1:], jnp.zeros_like(c_t[:1])])

    def backward(a_tp1: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        td, trace = inputs
        a = td + trace * a_tp1
        return a, a

    _, advantages = jax.lax.scan(backward, jnp.zeros_like(td_t[0]), (td_t, trace_t), reverse=True)
    return OffPolicyReturns(advantages, v_t + jnp.minimum(rho_bar, rho_t) * advantages)


def outcome_labels(reward: Array, discount: Array) -> Array:
    """Returns the Monte-Carlo return of each of N steps, [N]; a discount of 0 ends an episode."""

    def backward(following: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        r, gamma = inputs
        label = r + gamma * following
        return label, label

    _, labels = jax.lax.scan(backward, jnp.zeros(()), (reward, discount), reverse=True)
    return labels
