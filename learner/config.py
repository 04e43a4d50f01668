"""The learner's configuration: frozen dataclasses, checked where they are made."""

from __future__ import annotations

import dataclasses
from typing import Any

from common.errors import ConfigError
from common.models.distribution import FREE, SamplingConfig
from learner.curriculum import CurriculumConfig
from learner.health import HealthConfig
from learner.monitor import REMEMBERED
from learner.priorities import PriorityConfig
from learner.update_config import UpdateConfig


@dataclasses.dataclass(frozen=True)
class WarmStartConfig:
    """Demonstrations and the supervised start; 0 demonstrations skips it."""

    demonstrations: int = 800  # episodes
    begin: int = 400  # episodes before the first gradient step
    batch: int = 32  # steps
    success: float = 0.3  # stop when the weaker half of the task families reaches this
    window: int = 96  # newest episodes, sampled, over which that is measured
    max_updates: int = 5000
    publish_every: int = 25  # gradient steps
    epsilon: float = 0.1  # share of the expert's steps replaced by an unlabelled disturbance


@dataclasses.dataclass(frozen=True)
class OfflineConfig:
    """Recorded episodes: the warm start takes of them first, and the rest goes to replay."""

    data: str = ""  # their folder, as launch/data.py makes one
    updates: int = 0  # of the policy, on them alone, before it learns from new ones


@dataclasses.dataclass(frozen=True)
class ReinforceConfig:
    """Online learning."""

    episodes: int = 2000  # of the policy, in all
    warmup_episodes: int = 48  # in replay before the first update
    batch_steps: int = 256
    critic_updates: int = 4  # on their own for each update of the policy
    critic_warmup: int = 60  # updates of the critic before the first of the policy
    critic_steps: int = 512
    replay_episodes: int = 400
    max_uses: float = 4.5  # samples a step on average: the update-to-data bound
    publish_every: int = 2  # updates
    sweep_every: int = 0  # updates between looks at what was not sampled lately; 0: none
    final_step_size: float = 1.0  # share of the learning rate at the end, linearly from 1
    synchronous: bool = False  # actors wait while the learner learns, and the other way round
    round_episodes: int = 16  # of one such round


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """Everything about a run but its folder and addresses.

    The defaults are those of the paper's models; `quick` is what `make run` trains on two cores.
    """

    init: str = ""  # a checkpoint: its policy and tokenizer, instead of a fresh `model`
    model: str = "tiny"
    vocab_size: int = 1600
    tasks: str = "all-train"
    horizon: dict[str, int] = dataclasses.field(
        default_factory=lambda: {"general": 15, "webshop": 20}  # DistRL, evaluation setting
    )
    sampling: SamplingConfig = FREE
    wire_dtype: str = "float32"
    mesh: tuple[int, int, int] = (1, 1, 1)  # data, fsdp, tensor
    screens_every: int = 25  # an actor sends the screens of every so many episodes
    record: bool = False  # keeps what arrives in the run's folder `recorded`, to learn from again
    checkpoint_every_s: float = 60.0
    minutes: float = 0.0  # of wall time in all; 0: no limit
    curriculum: CurriculumConfig = dataclasses.field(default_factory=CurriculumConfig)
    warm_start: WarmStartConfig = dataclasses.field(default_factory=WarmStartConfig)
    offline: OfflineConfig = dataclasses.field(default_factory=OfflineConfig)
    reinforce: ReinforceConfig = dataclasses.field(default_factory=ReinforceConfig)
    update: UpdateConfig = dataclasses.field(default_factory=UpdateConfig)
    priority: PriorityConfig = dataclasses.field(default_factory=PriorityConfig)
    health: HealthConfig = dataclasses.field(default_factory=HealthConfig)

    def __post_init__(self) -> None:
        def require(holds: bool, sentence: str) -> None:
            if not holds:
                raise ConfigError(sentence)

        require(
            self.sampling.temperature > 0,
            f"sampling.temperature must be above 0 to learn, not {self.sampling.temperature}.",
        )
        require(self.minutes >= 0, f"minutes must not be negative, not {self.minutes}.")
        require(
            self.wire_dtype in ("float32", "bfloat16"),
            f"wire_dtype must be float32 or bfloat16, not {self.wire_dtype!r}.",
        )
        require(
            0 <= self.warm_start.success <= 1,
            f"warm_start.success is a share in 0..1, not {self.warm_start.success}.",
        )
        require(
            1 <= self.warm_start.window <= REMEMBERED,
            f"warm_start.window must be in 1..{REMEMBERED}, not {self.warm_start.window}.",
        )
        require(
            0 < self.update.gamma <= 1 and 0 <= self.update.lambda_ <= 1,
            f"gamma and lambda_ must be in 0..1, not {self.update.gamma}, {self.update.lambda_}.",
        )
        require(
            self.update.accumulate >= 1,
            f"update.accumulate must be at least 1, not {self.update.accumulate}.",
        )
        require(0 <= self.update.kappa <= 1, f"kappa must be in 0..1, not {self.update.kappa}.")
        require(
            self.offline.updates >= 0 and (not self.offline.updates or self.offline.data != ""),
            "offline.updates must not be negative, and needs offline.data.",
        )
        longest = max(self.horizon.values())
        require(min(self.horizon.values()) >= 1, "A horizon must be at least one step.")
        require(
            self.reinforce.batch_steps >= longest,
            f"reinforce.batch_steps ({self.reinforce.batch_steps}) must hold an episode of the "
            f"longest horizon ({longest}).",
        )
        require(
            self.reinforce.warmup_episodes <= self.reinforce.replay_episodes,
            "reinforce.warmup_episodes must not be above reinforce.replay_episodes.",
        )
        require(self.reinforce.max_uses > 0, "reinforce.max_uses must be above 0.")
        require(
            0 < self.reinforce.final_step_size <= 1,
            "reinforce.final_step_size is a share in 0..1 of the learning rate, not "
            f"{self.reinforce.final_step_size}.",
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def quick() -> LearnerConfig:
    """What two cores learn in a quarter of an hour, on the simulated phone."""
    return LearnerConfig(
        tasks="all-practice",
        horizon={"general": 12, "webshop": 14},
        minutes=8.5,
        sampling=SamplingConfig(grammar=True),
        reinforce=ReinforceConfig(
            episodes=6000,
            batch_steps=128,
            critic_updates=1,
            replay_episodes=3000,
            publish_every=3,
            final_step_size=0.1,
        ),
        update=UpdateConfig(policy_lr=8e-4, gamma=0.97, kappa=0.0),
    )
