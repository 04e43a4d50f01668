"""All that follows from the learner's settings: tasks, environment, policy and agents."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from actors.client import Welcome
from actors.demonstrator import Demonstrator
from actors.device.adb import AdbDevice
from actors.environment import PhoneEnvironment
from actors.evaluators.verdict import Judge
from actors.policy import Policy
from actors.rollout import PolicyAgent
from common.codec import MAX_STEPS
from common.errors import ConfigError
from common.models import vision
from common.models.autoui import AutoUIConfig
from common.models.distribution import FREE, SamplingConfig
from common.models.text import Tokenizer
from common.tasks import TaskSampler, digest, load_tasks
from common.types import Version

LAYOUT_SEEDS = 1_000_000_000  # phone layouts from here on are for evaluation


@dataclasses.dataclass(frozen=True)
class Settings:
    """What WELCOME says, checked.

    Attributes:
      model: Shape of the policy.
      tasks: What `common.tasks.load_tasks` takes.
      horizon: The most steps of an episode, by suite.
      sampling: Of the policy; the learner computes with the same.
      screens_every: Each how many-th episode carries its screens; 0 for none.
      expert_epsilon: Share of the expert's steps that are disturbed.
      tasks_digest: What `common.tasks.digest` says of the learner's tasks; "" if it didn't say.
    """

    model: AutoUIConfig
    tasks: str
    horizon: dict[str, int]
    sampling: SamplingConfig = FREE
    screens_every: int = 0
    expert_epsilon: float = 0.1
    tasks_digest: str = ""

    def __post_init__(self) -> None:
        if not all(1 <= steps <= MAX_STEPS for steps in self.horizon.values()):
            raise ConfigError(f"A horizon must be in 1..{MAX_STEPS}: {self.horizon}.")
        if self.screens_every < 0 or not 0 <= self.expert_epsilon < 1:
            raise ConfigError(f"A value is out of its range: {self}.")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Takes the fields it knows; ConfigError for one that is missing or unusable."""
        names = {field.name for field in dataclasses.fields(cls)} & set(values)
        try:
            model = AutoUIConfig.from_dict(values["model"])
            sampling = SamplingConfig(**values.get("sampling", {}))
            known = {name: values[name] for name in names}
            return cls(**known | {"model": model, "sampling": sampling})
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"The learner's settings don't fit this actor: {error!r}.") from error


class Session:
    """What an actor works with until the learner says something else.

    Attributes:
      config_id: Of the settings it was made from.
      version: Of the policy's parameters, or None before the first.
      environment: The phone with its judge.
      explorer: The policy, sampled as the learner wants it.
      expert: The demonstrator, or None if the phone has none.
      extract: Makes the policy's features of a screen.
    """

    def __init__(
        self,
        welcome: Welcome,
        device: AdbDevice,
        judge: Judge,
        name: str,
        seed: int,
        settle_s: float | None,
        lineage: int = 0,
        extractor: vision.Extractor = vision.extractor,
    ):
        self.config_id = welcome.config_id
        self.settings = Settings.from_dict(welcome.settings)
        tasks = load_tasks(self.settings.tasks)
        if self.settings.tasks_digest not in ("", digest(tasks)):
            raise ConfigError(
                f"The learner's tasks are not those of {self.settings.tasks} on this machine. "
                "Give both the same file."
            )
        missing = {task.suite for task in tasks} - set(self.settings.horizon)
        if missing:
            raise ConfigError(f"The learner's settings have no horizon for {sorted(missing)}.")
        self.environment = PhoneEnvironment(device, judge, self.settings.horizon, settle_s)
        tokenizer = Tokenizer.from_json(welcome.body.decode())
        self.extract = extractor(self.settings.model)
        self._policy = Policy(
            self.settings.model, tokenizer, seed, self.settings.sampling, self.extract
        )
        self.version: Version | None = None
        self.explorer = PolicyAgent(self._policy)
        self.expert: Demonstrator | None = None
        if device.simulated:
            self.expert = Demonstrator(device, self._policy, self.settings.expert_epsilon)
        # Actors of one seed differ by name, or all would play the same tasks.
        # A restored learner's run goes on with new tasks, not with those of its beginning.
        self._random = random.Random(f"{name} {seed} {lineage}")
        self.sampler = TaskSampler(tasks, self._random.randrange(2**31))

    def use(self, version: Version, params: dict[str, Any]) -> None:
        """Acts by these parameters from the next episode on."""
        self._policy.set_params(params, version.step)
        self.version = version

    def next_layout(self) -> int:
        return self._random.randrange(LAYOUT_SEEDS)

    def keeps_screens(self, seq: int) -> bool:
        every = self.settings.screens_every
        return every > 0 and seq % every == 0
