"""Gradient steps on what the learner has in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from common.errors import DistRLError
from common.models import lora
from learner.config import LearnerConfig
from learner.memory import Memory
from learner.packing import pack
from learner.priorities import importance
from learner.progress import Progress
from learner.replay import Entry
from learner.state import LearnerState, StepReport
from learner.update import Updates

MOST_SKIPPED = 20  # updates in a row


class Trainer:
    """Owns the trained state, and counts its steps in the run's progress.

    Attributes:
      state: Parameters, optimizers, critic.
      rng: Draws demonstrations; that of the replay.
      scalars: What the newest steps told, by the names of docs/metrics.md.
    """

    def __init__(
        self,
        config: LearnerConfig,
        updates: Updates,
        state: LearnerState,
        progress: Progress,
        memory: Memory,
        rng: np.random.Generator,
        *,
        image_grid: tuple[int, int] | None = None,
        encode: Callable[[Sequence[str]], np.ndarray] | None = None,
    ):
        """Makes a trainer.

        Args:
          config: Of the run.
          updates: The jitted steps.
          state: What they begin with.
          progress: Of the run.
          memory: Where the data is, and what is learned about it goes.
          rng: As the attribute.
          image_grid: Rows and columns of the image's tokens, where those are patches.
          encode: Makes vectors of prompts, for a critic that wants them.
        """
        self._config, self._updates, self.state, self.rng = config, updates, state, rng
        self._progress, self._memory = progress, memory
        self._grid, self._encode = image_grid, encode
        self._horizon = max(config.horizon.values())
        self._skipped = 0  # updates in a row whose gradients were not finite
        self.scalars: dict[str, Any] = {}

    @property
    def params(self) -> Any:
        """The policy's parameters as they are published, on the host."""
        return jax.device_get(lora.scaled(self.state.params, self._config.update.lora))

    def imitate(self) -> None:
        """One step of imitation of the demonstrations."""
        demonstrations = self._memory.demonstrations
        rows, steps = demonstrations.sample(self._config.warm_start.batch, self.rng)
        self.state, report = self._updates.imitate(self.state, steps)
        demonstrations.update(rows, np.asarray(report.losses))
        self._take_scalars(report.scalars)
        self._progress.updates += 1

    def improve(self, share_done: float) -> bool:
        """The critic's own steps, then one of the policy; False if the replay has nothing.

        Args:
          share_done: How much of the online phase is over, in 0..1.
        """
        config, replay = self._config.reinforce, self._memory.replay
        warmup = config.critic_warmup if self._progress.critic_updates == 0 else 0
        for _ in range(warmup + config.critic_updates):
            self._improve_critic()
        if max_lag := self._config.priority.max_lag:
            replay.expire(self._progress.version - max_lag)
        entries = replay.sample(config.batch_steps, self._config.priority.top_share)
        if not entries:
            return False
        weights = np.array([replay.weight(entry.handle) for entry in entries])
        batch = pack(
            entries,
            config.batch_steps,
            self._horizon,
            self._encode,
            self._grid,
            importance(weights, self._config.priority.beta).tolist(),
        )
        size = 1 - (1 - config.final_step_size) * share_done
        self.state, report = self._updates.improve(self.state, batch, size)
        self.scalars["policy/step_size"] = size
        self._remember(entries, jax.device_get(report))
        self._progress.updates += 1
        return True

    def sweep(self) -> None:
        """Looks at the next part of the replay anew: priorities of what is not sampled grow old."""
        size = self._config.reinforce.batch_steps
        if entries := self._memory.replay.sweep(size):
            batch = pack(entries, size, self._horizon, self._encode)
            self.state, report = self._updates.measure(self.state, batch)
            self._memory.refresh(entries, jax.device_get(report))

    def restart_policy_optimizer(self) -> None:
        self.state = self._updates.restart_policy_optimizer(self.state)

    def _improve_critic(self) -> None:
        size, chosen = self._config.reinforce.critic_steps, []
        for entry in self._memory.replay.sample_uniform(size):
            if len(entry.episode) > size:
                break
            chosen.append(entry)
            size -= len(entry.episode)
        if not chosen:  # an expert's episodes alone
            return
        batch = pack(chosen, self._config.reinforce.critic_steps, self._horizon, self._encode)
        self.state, scalars = self._updates.improve_critic(self.state, batch)
        self.scalars.update(scalars)
        self._progress.critic_updates += 1

    def _remember(self, entries: list[Entry], report: StepReport) -> None:
        """Takes in what a step told of itself and of the episodes that it learned from."""
        self._take_scalars(report.scalars)
        if not self._skipped:  # else what it says of the episodes is no number either
            self._memory.refresh(entries, report)

    def _take_scalars(self, scalars: dict[str, Any]) -> None:
        """Keeps what a step told; stops a run whose gradients are no numbers any more."""
        self.scalars.update(scalars)
        self._skipped = self._skipped + 1 if scalars["policy/skipped"] > 0 else 0
        if self._skipped >= MOST_SKIPPED:
            raise DistRLError(
                f"{self._skipped} gradients in a row were not finite, up to update "
                f"{self._progress.updates}: the run has diverged. Its checkpoints are from before; "
                "start from one with --init and a lower update.policy_lr or update.imitation_lr."
            )
