"""DPER: how much an episode is worth replaying."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class PriorityConfig:
    """Weights of the terms of DistRL's priority.

    The paper's (50, 1, 0.01) presume its scales. Here each term is divided by its running mean
    first, so the weights say what they mean.
    """

    base: float = 0.0  # of every episode; alone it is uniform replay
    td: float = 1.0
    rho: float = 0.5
    entropy: float = 0.1
    surprise: float = 0.5  # factor exp(surprise (R - V_traj)), a soft automatic curriculum
    alpha: float = 0.5  # P ~ p ** alpha
    successes_only: bool = False  # filtered behaviour cloning
    top_share: float = 1.0  # below 1: uniform among this share of the largest, DigiRL's filter
    beta: float = 0.0  # correction of the sampling itself (Schaul et al. 2016); the paper has none
    max_lag: int = 0  # versions; what older parameters acted is replayed no more; 0: no limit

    def __post_init__(self) -> None:
        if not 0 < self.top_share <= 1:
            raise ConfigError(f"priority.top_share is a share in 0..1, not {self.top_share}.")
        if not 0 <= self.beta <= 1:
            raise ConfigError(f"priority.beta must be in 0..1, not {self.beta}.")
        if self.max_lag < 0:
            raise ConfigError(f"priority.max_lag must not be negative, not {self.max_lag}.")


class EpisodeTerms(NamedTuple):
    """Means over an episode's steps, from which its priority is made."""

    td: float  # mean |TD error|
    rho: float  # mean min(rho, rho_bar)
    entropy: float  # mean token entropy, nats


class RunningMeans:
    """Exponential means of the three terms: the scale by which each is divided."""

    def __init__(self, decay: float = 0.99):
        self._decay = decay
        self._means: np.ndarray | None = None

    def update(self, terms: EpisodeTerms) -> None:
        values = np.asarray(terms, np.float64)
        if self._means is None:
            self._means = values
        else:
            self._means = self._decay * self._means + (1 - self._decay) * values

    def normalise(self, terms: EpisodeTerms) -> EpisodeTerms:
        means = np.ones(3) if self._means is None else np.maximum(self._means, 1e-6)
        return EpisodeTerms(*(np.asarray(terms) / means).tolist())


def priority(
    terms: EpisodeTerms, episode_return: float, instruction_value: float, config: PriorityConfig
) -> float:
    """Returns an episode's sampling weight p ** alpha; never 0 unless filtered out.

    DistRL, "Distributed Prioritized Experience Replay": p = w1 |delta| + w2 rho + w3 H.

    Args:
      terms: Normalised terms.
      episode_return: R, 0 or 1.
      instruction_value: V_traj(c), the critic's guess of R from the instruction alone.
      config: Weights and switches.
    """
    if config.successes_only and episode_return <= 0:
        return 0.0
    p = config.base + config.td * terms.td + config.rho * terms.rho + config.entropy * terms.entropy
    p *= np.exp(config.surprise * (episode_return - instruction_value))
    weight = float(p + 1e-3) ** config.alpha
    if not np.isfinite(weight):
        raise ValueError(f"priority is not finite: terms {terms}, V_traj {instruction_value}")
    return weight


def importance(weights: np.ndarray, beta: float) -> np.ndarray:
    """Returns what corrects for sampling in proportion to `weights` [B]: the largest is 1.

    Schaul et al. 2016, section 3.4: (1 / (N P_i)) ** beta, over its maximum.
    """
    if not (weights > 0).all():
        raise ValueError("an episode of weight 0 can't have been sampled by weight")
    return (weights.min() / weights) ** beta
