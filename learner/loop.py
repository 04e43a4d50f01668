"""The learner's loop: demonstrations, warm start, and learning from what the actors do."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from common.channel import Mode
from common.errors import DistRLError
from common.metrics import MetricsWriter
from common.models import lora
from common.types import Version
from learner import reports
from learner.archive import Archive
from learner.checkpoint import Checkpoints
from learner.config import LearnerConfig
from learner.feed import Arrival, Feed
from learner.health import Health
from learner.ingest_process import IngestProcess
from learner.leases import Leases
from learner.memory import Memory
from learner.packing import pack
from learner.priorities import importance
from learner.progress import Progress
from learner.publish_process import PublisherProcess
from learner.replay import Entry
from learner.state import LearnerState, StepReport
from learner.update import Updates

logger = logging.getLogger(__name__)

MOST_SKIPPED = 20  # updates in a row
SILENT_S = 1.5  # an actor that was not heard for so long has stopped; it speaks every half second


class Learner:
    """Owns a run's state and steps it; `run` is the whole of it."""

    def __init__(
        self,
        config: LearnerConfig,
        updates: Updates,
        state: LearnerState,
        progress: Progress,
        rng: np.random.Generator,
        *,
        ingest: IngestProcess,
        feed: Feed,
        memory: Memory,
        publisher: PublisherProcess,
        checkpoints: Checkpoints,
        metrics: MetricsWriter,
        archive: Archive,
        meta: dict[str, Any],
        encode: Callable[[Sequence[str]], np.ndarray] | None = None,
    ):
        self.config, self.progress = config, progress
        self._updates, self._state, self._rng = updates, state, rng
        self._ingest, self._publisher, self._checkpoints = ingest, publisher, checkpoints
        self._metrics, self._archive, self._meta = metrics, archive, meta
        self._encode = encode  # prompts, for the critic
        self._horizon = max(config.horizon.values())
        self._grid = meta["model"]["image_grid"]
        self._feed, self._memory = feed, memory
        # What the newest finished checkpoint needs of the journal.
        self._needed = (memory.live(), progress.position)
        self._health = Health(config.health)
        self._scalars: dict[str, Any] = {}
        self._is_behind = False  # the data is more than it can learn from
        self._leases = Leases()
        self._skipped = 0  # updates in a row whose gradients were not finite
        self._began = time.monotonic() - progress.wall_s
        self._saved = self._reported = time.monotonic()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Steps until the run is done or `stopped` says so; saves at the end in both cases."""
        if self._state.frozen:
            frozen = jax.device_get(self._state.frozen)
            self._publisher.publish_base(frozen, self.progress.lineage, self.config.wire_dtype)
        if self._warming and not self.config.warm_start.demonstrations:
            self._end_warm_start()
        self._publish()
        while self.progress.phase != "done" and not stopped():
            self._receive()
            worked = self._warm_start() if self._warming else self._reinforce()
            if not worked:
                self._receive(timeout_s=0.05)
            self._report()
            self._finish_if_done()
        self._save()
        self._checkpoints.wait()
        self._ingest.retain(*self._needed)
        self._report(force=True)

    def farewell(self, timeout_s: float) -> None:
        """Tells the actors of a finished run to stop, and waits until they are silent."""
        if self.progress.phase != "done":
            return
        self._ingest.set_pulse(self.progress.lineage, self.progress.version, Mode.STOP)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if all(actor["last_seen_s"] > SILENT_S for actor in self._ingest.actors.values()):
                return
            # Nobody reads any more, and room for what the actors still have: a later run reads it.
            self._ingest.consumed(self._ingest.wait(0, 0.0))
            time.sleep(0.1)

    # Stages of the loop.

    def _receive(self, timeout_s: float = 0.0) -> None:
        """Takes what arrived: demonstrations to one side, the policy's episodes to replay."""
        end = self._ingest.wait(self.progress.position, timeout_s)
        for arrival in self._feed.take(end):
            self._keep(arrival)
            self.progress.position = arrival.position + 1
        self._ingest.consumed(self.progress.position)
        self._ingest.set_pulse(self.progress.lineage, self.progress.version, self._mode())

    def _keep(self, arrival: Arrival) -> None:
        position, episode = arrival
        memory = self._memory
        self._archive.write(episode, position)
        memory.monitor.add(episode, position)
        if episode.source == "expert":
            wanted = self.config.warm_start.demonstrations
            if self._warming and episode.success and len(memory.demonstrations) < wanted:
                memory.demonstrations.insert(episode, position)
                self.progress.demonstrations = len(memory.demonstrations)
        elif not self._warming:  # till then they are there to measure the policy
            self.progress.episodes += 1
            filtered = self.config.priority.successes_only and not episode.success
            memory.replay.insert(episode, 0.0 if filtered else None, position=position)

    def _mode(self) -> Mode:
        """Returns what the actors are to do: nothing while their episodes would only be evicted."""
        wanted = self.config.warm_start.demonstrations
        if self._warming and len(self._memory.demonstrations) < wanted:
            return Mode.DEMONSTRATE
        return Mode.WAIT if self._is_behind or self._round_is_full() else Mode.EXPLORE

    def _warm_start(self) -> bool:
        """One gradient step of imitation, and the end of this phase by measured success."""
        config, demonstrations = self.config.warm_start, self._memory.demonstrations
        if len(demonstrations) < min(config.begin, config.demonstrations):
            return False
        rows, steps = demonstrations.sample(config.batch, self._rng)
        self._state, report = self._updates.imitate(self._state, steps)
        demonstrations.update(rows, np.asarray(report.losses))
        self._take_scalars(report.scalars)
        self.progress.updates += 1
        if self.progress.updates % config.publish_every == 0:
            self._publish()
        success = self._memory.monitor.weaker_success(config.window)
        reached = success is not None and success >= config.success
        if reached or self.progress.updates >= config.max_updates:
            logger.info(
                "Warm start ends after %d updates; success of the weaker half of the families in "
                "the newest %d episodes: %s.",
                self.progress.updates,
                config.window,
                "not measured" if success is None else f"{success:.2f}",
            )
            self._end_warm_start()
        return True

    def _end_warm_start(self) -> None:
        self.progress.phase = "reinforce"
        self.progress.warm_start_step = self.progress.updates
        self.progress.warm_start_wall_s = time.monotonic() - self._began
        self._checkpoints.pin(self.progress.updates)
        self._state = self._updates.restart_policy_optimizer(self._state)
        self._memory.end_demonstrations()
        self._publish()
        self._save()
        # What comes next goes to replay: also in a later life, which begins at this checkpoint.
        self._checkpoints.wait()

    def _reinforce(self) -> bool:
        """The critic's own steps, then one of the policy, as the update-to-data bound allows."""
        config, replay = self.config.reinforce, self._memory.replay
        self._is_behind = False
        allowed = config.max_uses * replay.inserted_steps - replay.sampled_steps
        if config.synchronous and not self._round_is_full():
            return False
        if self.progress.episodes < config.warmup_episodes or allowed < config.batch_steps:
            if config.synchronous:
                self.progress.round_began = self.progress.episodes
                self._publish()
            return False
        warmup = config.critic_warmup if self.progress.critic_updates == 0 else 0
        for _ in range(warmup + config.critic_updates):
            self._improve_critic()
        if max_lag := self.config.priority.max_lag:
            replay.expire(self.progress.version - max_lag)
        entries = replay.sample(config.batch_steps, self.config.priority.top_share)
        if not entries:
            return False
        weights = np.array([replay.weight(entry.handle) for entry in entries])
        batch = pack(
            entries,
            config.batch_steps,
            self._horizon,
            self._encode,
            self._grid,
            importance(weights, self.config.priority.beta).tolist(),
        )
        size = 1 - (1 - config.final_step_size) * self._share_done()
        self._state, report = self._updates.improve(self._state, batch, size)
        self._scalars["policy/step_size"] = size
        self._remember(entries, jax.device_get(report))
        self.progress.updates += 1
        if self.progress.updates % config.publish_every == 0:
            self._publish()
        if config.sweep_every and self.progress.updates % config.sweep_every == 0:
            self._sweep()
        missing = config.min_uses * replay.inserted_steps - replay.sampled_steps
        self._is_behind = missing > config.batch_steps
        return True

    # Parts of the stages.

    def _share_done(self) -> float:
        """How much of the online phase is over, by episodes or by time, in 0..1."""
        done = self.progress.episodes / max(self.config.reinforce.episodes, 1)
        if limit_s := self.config.minutes * 60:
            began = self.progress.warm_start_wall_s
            elapsed_s = time.monotonic() - self._began
            done = max(done, (elapsed_s - began) / max(limit_s - began, 1e-6))
        return min(max(done, 0.0), 1.0)

    def _round_is_full(self) -> bool:
        """Whether a synchronous round has its episodes, so that the actors wait for the updates."""
        config = self.config.reinforce
        arrived = self.progress.episodes - self.progress.round_began
        return config.synchronous and not self._warming and arrived >= config.round_episodes

    def _improve_critic(self) -> None:
        size, chosen = self.config.reinforce.critic_steps, []
        for entry in self._memory.replay.sample_uniform(size):
            if len(entry.episode) > size:
                break
            chosen.append(entry)
            size -= len(entry.episode)
        batch = pack(chosen, self.config.reinforce.critic_steps, self._horizon, self._encode)
        self._state, scalars = self._updates.improve_critic(self._state, batch)
        self._scalars.update(scalars)
        self.progress.critic_updates += 1

    def _sweep(self) -> None:
        """Looks at the next part of the replay anew: priorities of what is not sampled grow old."""
        size = self.config.reinforce.batch_steps
        if entries := self._memory.replay.sweep(size):
            batch = pack(entries, size, self._horizon, self._encode)
            self._state, report = self._updates.measure(self._state, batch)
            self._memory.refresh(entries, jax.device_get(report))

    def _remember(self, entries: list[Entry], report: StepReport) -> None:
        """Takes in what a step told of itself and of the episodes that it learned from."""
        self._take_scalars(report.scalars)
        if not self._skipped:  # else what it says of the episodes is no number either
            self._memory.refresh(entries, report)

    def _take_scalars(self, scalars: dict[str, Any]) -> None:
        """Keeps what a step told; stops a run whose gradients are no numbers any more."""
        self._scalars.update(scalars)
        self._skipped = self._skipped + 1 if scalars["policy/skipped"] > 0 else 0
        if self._skipped >= MOST_SKIPPED:
            raise DistRLError(
                f"{self._skipped} gradients in a row were not finite, up to update "
                f"{self.progress.updates}: the run has diverged. Its checkpoints are from before; "
                "start from one with --init and a lower update.policy_lr or update.imitation_lr."
            )

    def _publish(self) -> None:
        self.progress.version += 1
        version = Version(self.progress.lineage, self.progress.version)
        params = jax.device_get(lora.scaled(self._state.params, self.config.update.lora))
        self._publisher.publish(params, version, self.config.wire_dtype)

    def _save(self) -> None:
        self.progress.wall_s = time.monotonic() - self._began
        is_new = self._checkpoints.save(
            self.progress.updates,
            self._state,
            {
                **self._meta,
                "progress": dataclasses.asdict(self.progress),
                "rng": self._rng.bit_generator.state,
            },
            self._memory.save(),
        )
        if is_new:  # and the one before is finished
            self._ingest.retain(*self._needed)
            self._needed = (self._memory.live(), self.progress.position)
        self._saved = time.monotonic()

    def _finish_if_done(self) -> None:
        elapsed_s = time.monotonic() - self._began
        limit_s = self.config.minutes * 60
        wanted = self.config.reinforce.episodes
        enough = not self._warming and self.progress.episodes >= wanted
        if enough or (limit_s and elapsed_s >= limit_s):
            self.progress.phase = "done"
            self._publish()
        if time.monotonic() - self._saved >= self.config.checkpoint_every_s:
            self._save()

    # What is told to people.

    @property
    def _warming(self) -> bool:
        return self.progress.phase == "warm start"

    def _report(self, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._reported < 1.0:
            return
        self._reported = now
        self._publisher.check()
        elapsed_s, memory = now - self._began, self._memory
        self._ingest.set_status(reports.status(self.progress, self.config, memory, elapsed_s))
        metrics = reports.metrics(self.progress, memory, self._scalars, self._ingest.counters)
        metrics |= self._leases.update(self._ingest.actors)
        self._metrics.write(self.progress.updates, elapsed_s, metrics)
        for sign in self._health.check(self.progress.episodes, metrics):
            logger.warning("%s", sign)
            if self.config.health.then == "stop":
                raise DistRLError(sign)
