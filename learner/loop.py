"""The learner's loop: demonstrations, warm start, and learning from what the actors do."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import jax

from common.channel import Mode
from common.errors import ConfigError, DistRLError
from common.metrics import MetricsWriter
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
from learner.progress import Progress
from learner.publish_process import PublisherProcess
from learner.trainer import Trainer

logger = logging.getLogger(__name__)

SILENT_S = 1.5  # an actor that was not heard for so long has stopped; it speaks every half second


class Learner:
    """Takes a run from its warm start to its end; `run` is the whole of it."""

    def __init__(
        self,
        config: LearnerConfig,
        progress: Progress,
        *,
        trainer: Trainer,
        ingest: IngestProcess,
        feed: Feed,
        memory: Memory,
        publisher: PublisherProcess,
        checkpoints: Checkpoints,
        metrics: MetricsWriter,
        archive: Archive,
        meta: dict[str, Any],
    ):
        self.config, self.progress = config, progress
        self._trainer, self._memory = trainer, memory
        self._ingest, self._feed = ingest, feed
        self._publisher, self._checkpoints = publisher, checkpoints
        self._metrics, self._archive, self._meta = metrics, archive, meta
        # What the newest finished checkpoint needs of the journal.
        self._needed = (memory.live(), progress.position)
        self._health, self._leases = Health(config.health), Leases()
        self._is_behind = False  # the data is more than it can learn from
        self._began = time.monotonic() - progress.wall_s
        self._saved = self._reported = time.monotonic()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Steps until the run is done or `stopped` says so; saves at the end in both cases."""
        if frozen := self._trainer.state.frozen:
            base = jax.device_get(frozen)
            self._publisher.publish_base(base, self.progress.lineage, self.config.wire_dtype)
        if self._warming:  # recorded ones among them
            self.progress.demonstrations = len(self._memory.demonstrations)
        if self._warming and not self.config.warm_start.demonstrations:
            self._end_warm_start()
        self._publish()
        stages = {
            "warm start": self._warm_start,
            "offline": self._offline,
            "reinforce": self._reinforce,
        }
        while self.progress.phase != "done" and not stopped():
            self._receive()
            worked = stages[self.progress.phase]()
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
        memory.see(episode, position)
        if episode.source == "expert":
            wanted = self.config.warm_start.demonstrations
            if self._warming and episode.success and len(memory.demonstrations) < wanted:
                memory.demonstrations.insert(episode, position)
                self.progress.demonstrations = len(memory.demonstrations)
        elif not self._warming:  # till then they are there to measure the policy
            self.progress.episodes += 1
            memory.insert(episode, position)

    def _mode(self) -> Mode:
        """Returns what the actors are to do: nothing while their episodes would only be evicted."""
        wanted = self.config.warm_start.demonstrations
        if self._warming and len(self._memory.demonstrations) < wanted:
            return Mode.DEMONSTRATE
        waits = self.progress.phase == "offline" or self._is_behind or self._round_is_full()
        return Mode.WAIT if waits else Mode.EXPLORE

    def _warm_start(self) -> bool:
        """One gradient step of imitation, and the end of this phase by measured success."""
        config = self.config.warm_start
        if len(self._memory.demonstrations) < min(config.begin, config.demonstrations):
            return False
        self._trainer.imitate()
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
        self.progress.phase = "offline" if self.config.offline.updates else "reinforce"
        self.progress.warm_start_step = self.progress.updates
        self.progress.warm_start_wall_s = time.monotonic() - self._began
        self._checkpoints.pin(self.progress.updates)
        self._trainer.restart_policy_optimizer()
        self._memory.end_demonstrations()
        self._publish()
        self._save()
        # What comes next goes to replay: also in a later life, which begins at this checkpoint.
        self._checkpoints.wait()

    def _offline(self) -> bool:
        """A step on recorded episodes; after the last one, new ones are counted from 0."""
        if self.progress.offline_updates < self.config.offline.updates:
            if not self._improve():
                raise ConfigError(
                    f"There is nothing to learn from in {self.config.offline.data}: no episode of "
                    "it has a positive priority. See `launch/data.py stats`."
                )
            self.progress.offline_updates += 1
            return True
        replay = self._memory.replay
        replay.inserted_steps = replay.sampled_steps = 0
        self.progress.phase = "reinforce"
        self._publish()
        self._save()
        return True

    def _reinforce(self) -> bool:
        """A step as soon as the update-to-data bound allows."""
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
        if not self._improve():
            return False
        missing = config.min_uses * replay.inserted_steps - replay.sampled_steps
        self._is_behind = missing > config.batch_steps
        return True

    # Parts of the stages.

    def _improve(self) -> bool:
        """A step of the policy, and what is due every so many; False if there is no data."""
        config = self.config.reinforce
        if not self._trainer.improve(self._share_done()):
            return False
        if self.progress.updates % config.publish_every == 0:
            self._publish()
        if config.sweep_every and self.progress.updates % config.sweep_every == 0:
            self._trainer.sweep()
        return True

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
        in_rounds = config.synchronous and self.progress.phase == "reinforce"
        return in_rounds and arrived >= config.round_episodes

    def _publish(self) -> None:
        self.progress.version += 1
        version = Version(self.progress.lineage, self.progress.version)
        self._publisher.publish(self._trainer.params, version, self.config.wire_dtype)

    def _save(self) -> None:
        self.progress.wall_s = time.monotonic() - self._began
        is_new = self._checkpoints.save(
            self.progress.updates,
            self._trainer.state,
            {
                **self._meta,
                "progress": dataclasses.asdict(self.progress),
                "rng": self._trainer.rng.bit_generator.state,
                "curriculum": self._memory.curriculum.state(),
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
        enough = self.progress.phase == "reinforce" and self.progress.episodes >= wanted
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
        self._ingest.set_task_weights(memory.curriculum.weights())
        self._ingest.set_status(reports.status(self.progress, self.config, memory, elapsed_s))
        scalars, wire = self._trainer.scalars, self._ingest.counters
        metrics = reports.metrics(self.progress, memory, scalars, wire)
        metrics |= self._leases.update(self._ingest.actors)
        self._metrics.write(self.progress.updates, elapsed_s, metrics)
        for sign in self._health.check(self.progress.episodes, metrics):
            logger.warning("%s", sign)
            if self.config.health.then == "stop":
                raise DistRLError(sign)
