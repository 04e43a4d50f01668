"""The learner's loop: demonstrations, warm start, and learning from what the actors do."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from common.channel import Mode
from common.errors import ConfigError, DistRLError
from common.metrics import MetricsWriter
from common.models import lora
from common.types import Ending, Episode, Version
from learner.archive import Archive
from learner.checkpoint import Checkpoints
from learner.config import LearnerConfig
from learner.curriculum import Curriculum
from learner.demonstrations import Demonstrations
from learner.health import Health
from learner.ingest import Ingest
from learner.monitor import Monitor
from learner.offline import share_out
from learner.packing import pack
from learner.priorities import EpisodeTerms, RunningMeans, importance, priority
from learner.publish import Publisher
from learner.replay import Entry, Replay
from learner.state import LearnerState, StepReport
from learner.update import Updates

logger = logging.getLogger(__name__)

MOST_SKIPPED = 20  # updates in a row
SILENT_S = 1.5  # an actor that was not heard for so long has stopped; it speaks every half second


@dataclasses.dataclass
class Progress:
    """Where a run is; saved with every checkpoint."""

    phase: str = "warm start"  # then "offline" if that is asked for, "reinforce", "done"
    lineage: int = 0
    version: int = 0  # of the published parameters
    updates: int = 0
    demonstrations: int = 0
    offline_updates: int = 0
    episodes: int = 0  # of the policy, in the phase "reinforce"
    wall_s: float = 0.0
    warm_start_step: int | None = None  # the checkpoint at the end of the warm start
    warm_start_wall_s: float = 0.0


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
        ingest: Ingest,
        publisher: Publisher,
        checkpoints: Checkpoints,
        metrics: MetricsWriter,
        archive: Archive,
        curriculum: Curriculum,
        meta: dict[str, Any],
        recorded: Iterable[Episode] | None = None,
        encode: Callable[[Sequence[str]], np.ndarray] | None = None,
    ):
        self.config, self.progress = config, progress
        self._updates, self._state, self._rng = updates, state, rng
        self._ingest, self._publisher, self._checkpoints = ingest, publisher, checkpoints
        self._metrics, self._archive, self._meta = metrics, archive, meta
        self._curriculum, self._recorded = curriculum, recorded
        self._encode = encode  # prompts, for the critic
        self._horizon = max(config.horizon.values())
        unexpected = priority(EpisodeTerms(0.0, 0.0, 0.0), 1.0, 0.0, config.priority)
        self._replay = Replay(config.reinforce.replay_episodes, rng, largest=max(1.0, unexpected))
        self._grid = meta["model"]["image_grid"]
        self._demos = Demonstrations(
            max(config.warm_start.demonstrations, 1) * self._horizon, self._grid
        )
        self._means = RunningMeans()
        self._monitor = Monitor()
        self._health = Health(config.health)
        self._scalars: dict[str, Any] = {}
        self._explored = 0  # episodes of the policy that went to replay
        self._round_began = 0  # of a synchronous round: how many there were then
        self._critic_updates = 0
        self._skipped = 0  # updates in a row whose gradients were not finite
        self._began = time.monotonic() - progress.wall_s
        self._saved = self._reported = time.monotonic()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Steps until the run is done or `stopped` says so; saves at the end in both cases."""
        if self._state.frozen:
            frozen = jax.device_get(self._state.frozen)
            self._publisher.publish_base(frozen, self.progress.lineage, self.config.wire_dtype)
        self._take_recorded()
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
            self._ingest.drain()
            time.sleep(0.1)

    # Stages of the loop.

    def _take_recorded(self) -> None:
        """Shares recorded episodes out to the warm start and the replay, once."""
        if self._recorded is None:
            return
        wanted = self.config.warm_start.demonstrations if self._warming else 0
        share_out(self._recorded, self._demos, wanted, self._insert_old, self._horizon)
        self._recorded = None
        self.progress.demonstrations = max(self.progress.demonstrations, len(self._demos))
        if self.progress.phase == "reinforce" or not self.config.offline.updates:
            self._replay.inserted_steps = 0  # the bound on uses is by what is new

    def _receive(self, timeout_s: float = 0.0) -> None:
        """Takes what arrived: demonstrations to one side, the policy's episodes to replay."""
        first = self._ingest.get(timeout_s)
        episodes = [] if first is None else [first, *self._ingest.drain()]
        for episode in episodes:
            self._archive.write(episode)
            self._monitor.add(episode)
            if episode.source == "policy" and episode.ending is not Ending.TRUNCATED:
                self._curriculum.see_outcome(episode.task_id, episode.success)
            if episode.source == "expert":
                wanted = self.config.warm_start.demonstrations
                if self._warming and episode.success and len(self._demos) < wanted:
                    self._demos.insert(episode)
                    self.progress.demonstrations = len(self._demos)
            elif not self._warming:  # till then they are there to measure the policy
                self.progress.episodes += 1
                self._explored += 1
                self._insert(episode)
        enough = len(self._demos) >= self.config.warm_start.demonstrations
        mode = Mode.EXPLORE if enough or not self._warming else Mode.DEMONSTRATE
        if self.progress.phase == "offline" or self._round_is_full():
            mode = Mode.WAIT
        self._ingest.set_pulse(self.progress.lineage, self.progress.version, mode)

    def _warm_start(self) -> bool:
        """One gradient step of imitation, and the end of this phase by measured success."""
        config = self.config.warm_start
        if len(self._demos) < min(config.begin, config.demonstrations):
            return False
        rows, steps = self._demos.sample(config.batch, self._rng)
        self._state, report = self._updates.imitate(self._state, steps)
        self._demos.update(rows, np.asarray(report.losses))
        self._take_scalars(report.scalars)
        self.progress.updates += 1
        if self.progress.updates % config.publish_every == 0:
            self._publish()
        success = self._monitor.weaker_success(config.window)
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
        self._publish()
        self._save()
        self._state = self._updates.restart_policy_optimizer(self._state)
        for episode in self._demos:  # replayed, until newer ones take their place
            self._replay.insert(episode, fresh=False)

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
        self._replay.inserted_steps = self._replay.sampled_steps = 0
        self.progress.phase = "reinforce"
        self._publish()
        self._save()
        return True

    def _reinforce(self) -> bool:
        """A step as soon as the update-to-data bound allows."""
        config, replay = self.config.reinforce, self._replay
        allowed = config.max_uses * replay.inserted_steps - replay.sampled_steps
        if config.synchronous and not self._round_is_full():
            return False
        if self._explored < config.warmup_episodes or allowed < config.batch_steps:
            if config.synchronous:
                self._round_began = self._explored
                self._publish()
            return False
        return self._improve()

    # Parts of the stages.

    def _improve(self) -> bool:
        """The critic's own steps, then one of the policy; False if the replay has nothing."""
        config, replay = self.config.reinforce, self._replay
        warmup = config.critic_warmup if self._critic_updates == 0 else 0
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
        arrived = self._explored - self._round_began
        return (
            config.synchronous
            and self.progress.phase == "reinforce"
            and arrived >= config.round_episodes
        )

    def _insert_old(self, episode: Episode) -> None:
        self._insert(episode, fresh=False)

    def _insert(self, episode: Episode, fresh: bool = True) -> None:
        filtered = self.config.priority.successes_only and not episode.success
        self._replay.insert(episode, weight=0.0 if filtered else None, fresh=fresh)

    def _improve_critic(self) -> None:
        size, chosen = self.config.reinforce.critic_steps, []
        for entry in self._replay.sample_uniform(size):
            if len(entry.episode) > size:
                break
            chosen.append(entry)
            size -= len(entry.episode)
        if not chosen:  # an expert's episodes alone
            return
        batch = pack(chosen, self.config.reinforce.critic_steps, self._horizon, self._encode)
        self._state, scalars = self._updates.improve_critic(self._state, batch)
        self._scalars.update(scalars)
        self._critic_updates += 1

    def _sweep(self) -> None:
        """Looks at the next part of the replay anew: priorities of what is not sampled grow old."""
        size = self.config.reinforce.batch_steps
        if entries := self._replay.sweep(size):
            batch = pack(entries, size, self._horizon, self._encode)
            self._state, report = self._updates.measure(self._state, batch)
            self._refresh(entries, jax.device_get(report))

    def _remember(self, entries: list[Entry], report: StepReport) -> None:
        """Takes in what a step told of itself and of the episodes that it learned from."""
        self._take_scalars(report.scalars)
        if not self._skipped:  # else what it says of the episodes is no number either
            self._refresh(entries, report)

    def _refresh(self, entries: list[Entry], report: StepReport) -> None:
        """Gives the replay new priorities and value targets."""
        start = 0
        for entry in entries:
            rows = slice(start, start + len(entry.episode))
            start = rows.stop
            terms = EpisodeTerms(
                float(np.abs(report.td[rows]).mean()),
                float(report.rho[rows].mean()),
                float(report.entropy[rows].mean()),
            )
            self._means.update(terms)
            outcome = float(entry.episode.success)
            expected = float(report.instruction_value[rows.start])
            self._curriculum.see_value(entry.episode.task_id, expected)
            weight = priority(self._means.normalise(terms), outcome, expected, self.config.priority)
            self._replay.update(entry.handle, weight, np.asarray(report.targets[rows]))

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
        self._checkpoints.save(
            self.progress.updates,
            self._state,
            {
                **self._meta,
                "progress": dataclasses.asdict(self.progress),
                "rng": self._rng.bit_generator.state,
                "curriculum": self._curriculum.state(),
            },
        )
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
        version, replay = self.progress.version, self._replay
        self._ingest.set_task_weights(self._curriculum.weights())
        self._ingest.set_status(
            {
                "phase": self.progress.phase,
                "updates": self.progress.updates,
                "demonstrations": self.progress.demonstrations,
                "target_demonstrations": self.config.warm_start.demonstrations,
                "episodes": self.progress.episodes,
                "target_episodes": self.config.reinforce.episodes,
                "version": version,
                "replay_episodes": len(replay),
                "elapsed_s": now - self._began,
                **self._monitor.status(version),
            }
        )
        metrics: dict[str, Any] = {
            "run/phase": self.progress.phase,
            "run/version": version,
            "actors/episodes": self.progress.episodes,
            "replay/episodes": len(replay),
            "replay/uses_a_step": replay.sampled_steps / max(replay.inserted_steps, 1),
            "replay/late_updates": replay.late_updates,
            "replay/expired": replay.expired,
            **self._monitor.metrics(version),
            **{name: float(value) for name, value in self._scalars.items()},
            **{f"wire/{name}": count for name, count in self._ingest.counters.items()},
        }
        self._metrics.write(self.progress.updates, now - self._began, metrics)
        for sign in self._health.check(self.progress.episodes, metrics):
            logger.warning("%s", sign)
            if self.config.health.then == "stop":
                raise DistRLError(sign)
