"""A learner that learns nothing: all of it but the mathematics, so that it starts in a moment."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from common.models import autoui
from common.types import EOS_ID, Ending, Episode, Trajectory
from learner import build
from learner.demonstrations import Steps
from learner.loop import Learner
from learner.packing import Batch
from learner.state import ImitationReport, LearnerState, StepReport
from learner.update import Updates

MODEL = dataclasses.replace(
    autoui.PRESETS["tiny"],
    d_model=16,
    num_heads=2,
    d_kv=8,
    d_ff=32,
    encoder_layers=1,
    decoder_layers=1,
    image_dim=12,
    image_tokens=4,
    image_grid=(2, 2),
    prompt_length=8,
    action_length=6,
)
SCALARS = {"policy/skipped": 0.0}
SETTINGS: dict[str, Any] = {
    "vocab_size": 320,
    "warm_start.demonstrations": 6,
    "warm_start.begin": 3,
    "warm_start.batch": 4,
    "warm_start.max_updates": 10,
    "warm_start.publish_every": 2,
    "reinforce.warmup_episodes": 4,
    "reinforce.batch_steps": 32,
    "reinforce.critic_steps": 32,
    "reinforce.critic_updates": 1,
    "reinforce.critic_warmup": 1,
    "reinforce.publish_every": 4,
    "reinforce.replay_episodes": 40,
    "checkpoint_every_s": 0.3,
}


def learner(
    workdir: pathlib.Path, listen: str, **settings: Any
) -> contextlib.AbstractContextManager[Learner]:
    """Builds a real learner around `still_updates`, for the rest of this process."""
    autoui.PRESETS["tiny"] = MODEL
    build.make_updates = lambda *_: still_updates()
    config = build.configure("", "distrl", SETTINGS | settings)
    return build.learner(workdir=workdir, listen=listen, config=config, seed=0, insecure=False)


def still_updates() -> Updates:
    """Returns updates that count, and report numbers which follow from the batch alone."""

    def init(key: jax.Array, params: Any = None) -> LearnerState:
        del key, params
        weights = {"w": jnp.zeros(4)}
        return LearnerState(weights, weights, weights, weights, jnp.zeros((), jnp.int32), {})

    def imitate(state: LearnerState, steps: Steps) -> tuple[LearnerState, ImitationReport]:
        losses = 0.1 + steps.action_ids[:, 0] / 64
        return _counted(state), ImitationReport(losses, SCALARS)

    def improve(
        state: LearnerState, batch: Batch, step_size: float
    ) -> tuple[LearnerState, StepReport]:
        del step_size
        return _counted(state), measure(state, batch)[1]

    def measure(state: LearnerState, batch: Batch) -> tuple[LearnerState, StepReport]:
        rows = np.abs(batch.behaviour_log_probs).sum(-1) + batch.reward
        return state, StepReport(rows, rows, rows, rows, rows, SCALARS)

    def improve_critic(state: LearnerState, batch: Batch) -> tuple[LearnerState, dict[str, Any]]:
        del batch
        return state, {}

    return Updates(
        imitate=imitate,
        improve=improve,
        improve_critic=improve_critic,
        measure=measure,
        init=init,
        restart_policy_optimizer=lambda state: state,
    )


def _counted(state: LearnerState) -> LearnerState:
    return state._replace(updates=state.updates + 1)


def episode(
    actor: str, boot: str, seq: int, *, expert: bool, version: int, lineage: int, size: int = 0
) -> Episode:
    """Returns a made-up episode that fits MODEL; `size` bytes of a screen make it larger."""
    rng = np.random.default_rng([seq, len(actor), expert])
    length = int(rng.integers(2, 6))
    success = expert or bool(rng.integers(2))
    reward, discount = np.zeros(length, np.float32), np.ones(length, np.float32)
    reward[-1], discount[-1] = float(success), 0.0
    action_ids = rng.integers(2, 64, (length, 6)).astype(np.int32)
    action_ids[:, -2], action_ids[:, -1] = EOS_ID, 0
    return Episode(
        trajectory=Trajectory(
            prompt_ids=rng.integers(2, 64, (length, 8)).astype(np.int32),
            features=rng.integers(0, 256, (length, 4, 12)).astype(np.uint8),
            action_ids=action_ids,
            behaviour_log_probs=np.where(action_ids > 0, -0.1, 0.0).astype(np.float32),
            reward=reward,
            discount=discount,
            invalid=np.zeros(length, np.uint8),
            repeats=np.zeros(length, np.uint8),
            mask=np.ones(length, np.uint8),
            version=np.full(length, -1 if expert else version, np.int64),
        ),
        actor=actor,
        boot=boot,
        seq=seq,
        source="expert" if expert else "policy",
        task_id="t",
        template="t",
        family=f"family-{seq % 3}",
        suite="general",
        goal="Open the clock",
        seed=seq,
        ending=Ending.SUCCESS if success else Ending.HORIZON,
        cause="",
        verdict={"status": "success" if success else "failure"},
        lineage=lineage,
        temperature=1.0,
        duration_s=1.0,
        prompts=("prompt",) * length,
        actions=("action",) * length,
        screens=(b"\x89PNG\r\n\x1a\n" + bytes(size // length),) * length if size else (),
    )
