"""The algorithms that can be compared, each as a few changes of one configuration.

What they share stays: the model, the warm start, learning rates, the critic, the actors, and the
bound on how often a step is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from learner.config import LearnerConfig
from learner.priorities import PriorityConfig

UNIFORM = PriorityConfig(base=1.0, td=0.0, rho=0.0, entropy=0.0, surprise=0.0, alpha=1.0)


def distrl(config: LearnerConfig) -> LearnerConfig:
    """A-RIDE with DPER: the configuration's own defaults."""
    return config


def distrl_released(config: LearnerConfig) -> LearnerConfig:
    """What DistRL's published code does: V-trace of shaped rewards made binary, uniform replay."""
    config = _loss(
        config,
        advantage="released",
        binary=True,
        penalty="none",  # it is in the shaped reward
        invalid_reward=1.0,
        repeat_reward=0.4,
        entropy=0.0,
    )
    config = _update(config, gamma=0.5, lambda_=1.0, kappa=0.0)
    return _priority(config, UNIFORM, surprise=1.0, top_share=0.1)


def digirl(config: LearnerConfig) -> LearnerConfig:
    """DigiRL (Bai et al. 2024): all actors wait for each other, and what passes is imitated."""
    return _reinforce(digirl_async(config), synchronous=True)


def digirl_async(config: LearnerConfig) -> LearnerConfig:
    """The same with actors that wait for nobody ("DigiRL-DistRL Async" in DistRL's paper)."""
    longest = max(config.horizon.values())
    config = _loss(
        config,
        advantage="digirl",
        binary=True,
        threshold=1 / longest,
        imitate=True,
        penalty="none",
        entropy=0.0,
    )
    config = _update(config, lambda_=0.5, kappa=0.0)
    return _priority(config, UNIFORM, surprise=1.0, top_share=0.1)


def filtered_bc(config: LearnerConfig) -> LearnerConfig:
    """Imitation of one's own successes, invalid steps left out; the less expected the more often.

    Without the last, the families that succeed always fill the batches and the rest stand still.
    """
    return _priority(_imitating(config), UNIFORM, successes_only=True, surprise=3.0)


def filtered_bc_plain(config: LearnerConfig) -> LearnerConfig:
    """Imitation of one's own successes, every step of them, each success as often as another."""
    config = _loss(_imitating(config), penalty="none")
    return _priority(config, UNIFORM, successes_only=True)


def impala(config: LearnerConfig) -> LearnerConfig:
    """V-trace (Espeholt et al. 2018) on uniform replay: no masks, no clipped negatives."""
    config = _loss(
        config,
        penalty="none",
        negative_clip=config.update.loss.positive_clip,
        negative_ratio=0.0,
        negative_probability=0.0,
    )
    return _priority(_update(config, lambda_=1.0, kappa=1.0), UNIFORM)


def reinforce(config: LearnerConfig) -> LearnerConfig:
    """REINFORCE with a baseline: each round's episodes are used once, by the policy they are of."""
    config = _loss(
        config,
        advantage="return",
        penalty="none",
        negative_clip=config.update.loss.positive_clip,
        negative_ratio=0.0,
        negative_probability=0.0,
    )
    config = _priority(_update(config, kappa=0.0), UNIFORM)
    return _reinforce(config, synchronous=True, max_uses=1.0, publish_every=1)


PRESETS: dict[str, Callable[[LearnerConfig], LearnerConfig]] = {
    "distrl": distrl,
    "distrl-released": distrl_released,
    "digirl": digirl,
    "digirl-async": digirl_async,
    "filtered-bc": filtered_bc,
    "filtered-bc-plain": filtered_bc_plain,
    "impala": impala,
    "reinforce": reinforce,
}


def no_dper(config: LearnerConfig) -> LearnerConfig:
    """Uniform replay, but for the curriculum's factor."""
    return _priority(config, UNIFORM, **_kept(config, "successes_only", "surprise", "top_share"))


def no_retrace(config: LearnerConfig) -> LearnerConfig:
    """One-step advantages."""
    return _update(config, lambda_=0.0)


def no_entropy(config: LearnerConfig) -> LearnerConfig:
    """No entropy bonus."""
    return _loss(config, entropy=0.0)


def no_penalty(config: LearnerConfig) -> LearnerConfig:
    """Invalid and repeated actions count like others."""
    return _loss(config, penalty="none")


def no_curriculum(config: LearnerConfig) -> LearnerConfig:
    """The instruction's value has no say in what is replayed, and all tasks are played alike."""
    config = _priority(config, config.priority, surprise=0.0, top_share=1.0)
    return dataclasses.replace(
        config, curriculum=dataclasses.replace(config.curriculum, kind="uniform")
    )


ABLATIONS: dict[str, Callable[[LearnerConfig], LearnerConfig]] = {
    "dper": no_dper,
    "retrace": no_retrace,
    "entropy": no_entropy,
    "penalty": no_penalty,
    "curriculum": no_curriculum,
}


def _imitating(config: LearnerConfig) -> LearnerConfig:
    return _loss(config, advantage="filtered", binary=True, imitate=True, entropy=0.0)


def _kept(config: LearnerConfig, *names: str) -> dict[str, Any]:
    return {name: getattr(config.priority, name) for name in names}


def _priority(config: LearnerConfig, base: PriorityConfig, **changes: Any) -> LearnerConfig:
    return dataclasses.replace(config, priority=dataclasses.replace(base, **changes))


def _reinforce(config: LearnerConfig, **changes: Any) -> LearnerConfig:
    return dataclasses.replace(config, reinforce=dataclasses.replace(config.reinforce, **changes))


def _update(config: LearnerConfig, **changes: Any) -> LearnerConfig:
    return dataclasses.replace(config, update=dataclasses.replace(config.update, **changes))


def _loss(config: LearnerConfig, **changes: Any) -> LearnerConfig:
    return _update(config, loss=dataclasses.replace(config.update.loss, **changes))
