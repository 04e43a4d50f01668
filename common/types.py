"""Data that travels between processes.

Conventions: arrays are time-major, [T, ...]; discount 0 ends an episode and gamma is the learner's;
token id 0 is padding and 1 the end token; pixels stay uint8 until they are in the model.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np

PAD_ID = 0
EOS_ID = 1


class Version(NamedTuple):
    """Which parameters acted: a restored learner opens a new lineage, so versions never repeat."""

    lineage: int
    step: int


class Trajectory(NamedTuple):
    """One episode's steps as arrays; S prompt tokens, N image tokens of C values, A action tokens.

    `mask` is 0 for a row that only carries a value to bootstrap from (the last row of a truncated
    episode): its action is not learned from.
    """

    prompt_ids: np.ndarray  # [T, S] int32, padded with 0 on the right
    features: np.ndarray  # [T, N, C] uint8 pixels, or float32 of an image encoder
    action_ids: np.ndarray  # [T, A] int32, the tokens that were emitted, end token included
    behaviour_log_probs: np.ndarray  # [T, A] float32, mu of each emitted token, 0 on padding
    reward: np.ndarray  # [T] float32, after the action
    discount: np.ndarray  # [T] float32, after the action; 0 ends the episode
    invalid: np.ndarray  # [T] uint8, 1 if the action was invalid or changed nothing
    repeats: np.ndarray  # [T] uint8, how often in a row this action had been taken before
    mask: np.ndarray  # [T] uint8
    version: np.ndarray  # [T] int64, parameter version that acted; -1 if none of ours did


class Ending(enum.StrEnum):
    """Why an episode ended."""

    SUCCESS = "success"
    GAVE_UP = "gave_up"  # the policy declared the task complete or impossible, and it was not done
    HORIZON = "horizon"  # the step limit, a termination: H is part of the task
    TRUNCATED = "truncated"  # the device failed; no failure of the policy


@dataclasses.dataclass(frozen=True)
class Episode:
    """A finished episode with everything that is needed to judge, replay and look at it."""

    trajectory: Trajectory
    actor: str
    boot: str  # identifies one start of the actor
    seq: int  # without gaps within a boot
    source: str  # "policy", "expert", or "recorded": of a policy whose mu nobody wrote down
    task_id: str
    template: str
    family: str
    suite: str
    goal: str
    seed: int  # the device's layout
    ending: Ending
    cause: str  # for TRUNCATED: what failed; else ""
    verdict: dict[str, Any]  # common record of the judge: status, source, reason, ...
    lineage: int
    temperature: float
    duration_s: float
    prompts: tuple[str, ...]  # [T] exact prompt texts
    actions: tuple[str, ...]  # [T] exact action texts
    screens: tuple[bytes, ...] = ()  # [T] encoded images, or empty

    @property
    def success(self) -> bool:
        return self.ending is Ending.SUCCESS

    def __len__(self) -> int:
        return len(self.trajectory.reward)
