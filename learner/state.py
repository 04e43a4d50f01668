"""What a gradient step changes, and what it tells."""

from __future__ import annotations

from typing import Any, NamedTuple

import optax
from jax import Array

from learner.retrace import OffPolicyReturns


class LearnerState(NamedTuple):
    """Everything that a gradient step changes, and what no step does."""

    params: Any  # of the policy: what is trained of them
    opt_state: optax.OptState
    critic_params: Any
    critic_opt_state: optax.OptState
    updates: Array  # int32, gradient steps of the policy
    frozen: Any  # of the policy: the rest, {} without adapters; never donated


class ImitationReport(NamedTuple):
    """The loss of each of the N steps, by which they are sampled, and scalars to log."""

    losses: Array  # [N] negative log-probability of the action, nats
    scalars: dict[str, Array]


class StepReport(NamedTuple):
    """What the replay needs of each of the N rows, and scalars to log."""

    td: Array  # [N] TD errors
    rho: Array  # [N] min(rho, rho_bar)
    entropy: Array  # [N] mean over the action's tokens
    targets: Array  # [N] corrected value targets in 0..1
    instruction_value: Array  # [N] V_traj
    scalars: dict[str, Array]


class Replayed(NamedTuple):
    """A batch under today's policy and values."""

    log_probs: Array  # [N, A]
    mu: Array  # [N, A] those of the policy that acted; today's for an expert
    entropy: Array  # [N, A]
    outside: Array  # [N, A] bool
    rho: Array  # [N]
    td: Array  # [N] one-step errors
    returns: OffPolicyReturns
    targets: Array  # [N] of the value, in 0..1
