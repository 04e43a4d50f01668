"""An actor's life: connect to the learner, do what it asks for, send what came of it."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time

from actors.client import LearnerClient
from actors.device import safety
from actors.device.emulator import Phone
from actors.environment import JUDGE
from actors.evaluators.verdict import Judge
from actors.retries import Retries, Retry
from actors.rollout import Agent, Signature, run_episode
from actors.session import Session
from actors.supervise import Supervisor
from actors.waiting import Waiting
from common.channel import Mode
from common.errors import ConfigError, DeviceError
from common.metrics import MetricsWriter
from common.models import vision
from common.tasks import Task
from common.types import Ending, Episode, Version

logger = logging.getLogger(__name__)

IDLE_S = 0.05
MAX_WAITING = 64  # episodes in the spool: more would be old before the learner takes them
JUDGE_FAILURES = 5  # in a row, with which an actor gives up
NO_PARAMETERS = -1  # the step that the learner names before it has any


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """How an actor behaves.

    Attributes:
      name: Names it in the learner's records.
      boot: Identifies this start of it.
      seed: Of tasks, layouts and samples.
      connect_timeout_s: How long to wait for a learner at first ...
      lost_timeout_s: ... and for one that was there.
      settle_s: Wait before each screenshot; None is what the kind of phone needs.
      synchronous: Play one episode with each version of the parameters and wait for the next, so
        that all actors collect in rounds; else go on with the newest there is.
    """

    name: str
    boot: str
    seed: int = 0
    connect_timeout_s: float = 60.0
    lost_timeout_s: float = 120.0
    settle_s: float | None = None
    synchronous: bool = False


class _StoppedError(Exception):
    """The learner says stop in the middle of an episode."""


class Actor:
    """One phone's working loop."""

    def __init__(
        self,
        client: LearnerClient,
        phone: Phone,
        judge: Judge,
        config: ActorConfig,
        retries: Retries,
        *,
        supervisor: Supervisor | None = None,
        rules: safety.Rules = safety.NONE,
        writer: MetricsWriter | None = None,
        extractor: vision.Extractor = vision.extractor,
        waiting: Waiting | None = None,
    ):
        """Makes an actor.

        Args:
          client: Its end to the learner.
          phone: What it plays on.
          judge: Says what is done.
          config: How it behaves.
          retries: Where episodes that the phone cut short wait for another try.
          supervisor: Of the phone, if it had one before.
          rules: What must not happen on the phone.
          writer: Gets the phone's health after each episode.
          extractor: Makes the features of screens.
          waiting: A place for episodes whose judge can't be asked; without one they are truncated.
        """
        self._waiting = waiting
        self._client = client
        self._phone = phone
        self._judge = judge
        self._config = config
        self._retries = retries
        self._supervisor = supervisor or Supervisor(phone)
        self._rules = rules
        self._writer = writer
        self._extractor = extractor
        self._session: Session
        self._seq = 0
        self._played: Version | None = None
        self._judge_failures = 0
        self._began = time.monotonic()
        self.counts: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        """Works until the learner says stop.

        Raises:
          ConfigError: The learner is not there, went away for too long, or wants what can't be.
          DeviceError: The phone failed for good, or its judge did.
        """
        self._client.connect(self._config.connect_timeout_s)
        self._session = self._open()
        try:
            while (mode := self._mode()) is not Mode.STOP:
                if self._client.welcome.config_id != self._session.config_id:
                    self._session = self._open()
                self._send_judged()
                agent = None if self._is_behind() else self._agent(mode)
                if agent is None:
                    self._client.heartbeat("waiting", self._report())
                    self._client.poll(IDLE_S)
                else:
                    self._play(agent, "exploring" if mode is Mode.EXPLORE else "demonstrating")
        except _StoppedError:
            pass
        logger.info("The learner is done; so is this actor. %s.", self._report())

    def _is_behind(self) -> bool:
        """Whether so much waits, for the learner or the judge, that more would be old."""
        unjudged = self._waiting is not None and self._waiting.full
        return unjudged or self._client.waiting >= MAX_WAITING

    def _open(self) -> Session:
        welcome, config = self._client.welcome, self._config
        logger.info("Joined run %s.", welcome.run)
        phone = self._phone
        return Session(
            welcome,
            phone.device,
            self._judge,
            config.name,
            config.seed,
            config.settle_s,
            self._client.pulse.version.lineage,
            self._extractor,
            self._rules,
            (lambda: phone.restore(self._wait)) if phone.restores else None,
        )

    def _mode(self) -> Mode:
        """Returns what the learner wants; while it is away, what it wanted last."""
        self._client.poll()
        lost_s = self._client.lost_s
        if lost_s > self._config.lost_timeout_s:
            raise ConfigError(
                f"The learner has been silent for {lost_s:.0f} s. Start it again, then this actor; "
                f"the {self._client.waiting} episodes in its spool are delivered then."
            )
        return self._client.pulse.mode

    def _agent(self, mode: Mode) -> Agent | None:
        """Returns who is to act, or None if nobody can yet."""
        session = self._session
        if mode is Mode.DEMONSTRATE:
            return session.expert
        newest = self._client.pulse.version
        if mode is not Mode.EXPLORE or newest.step == NO_PARAMETERS:
            return None
        if newest != session.version:
            fetched = self._client.fetch(session.version)
            if fetched is not None:
                version, params = fetched
                session.use(Version(*version), params)
        if self._config.synchronous and session.version == self._played:
            return None
        return session.explorer if session.version is not None else None

    def _play(self, agent: Agent, state: str) -> None:
        """Plays an episode, sends it, and looks after the phone if that failed."""
        session, config = self._session, self._config
        task, seed, attempts = self._next()
        self.counts["begun"] += 1

        def on_step() -> None:
            self._client.heartbeat(state, f"{self._report()}: {task.goal}")
            self._stop_if_told()

        try:
            episode = run_episode(
                session.environment,
                agent,
                task,
                seed,
                Signature(config.name, config.boot, self._seq),
                lineage=(session.version or self._client.pulse.version).lineage,
                temperature=session.settings.sampling.temperature,
                keep_screens=session.keeps_screens(self._seq),
                on_step=on_step,
            )
        except _StoppedError:
            self.counts["stopped"] += 1
            raise
        except DeviceError as error:
            self.counts["unstarted"] += 1
            self._failed(error, Retry(task.id, seed, attempts, config.name))
            return
        if episode is None:
            self.counts["skipped"] += 1
            return
        if agent is session.explorer:
            self._played = session.version
        if self._wait_for_judge(episode):
            return
        if self._client.send(episode):
            self._seq += 1
        if episode.ending is Ending.TRUNCATED:
            self.counts["truncated"] += 1
            self._truncated(episode, Retry(task.id, seed, attempts, config.name))
            return
        self.counts["done"] += 1
        self.counts["successes"] += episode.success
        self._judge_failures = 0
        self._supervisor.worked()
        self._write()
        if agent is session.explorer:
            session.sampler.report(task, episode.success)

    def _next(self) -> tuple[Task, int, int]:
        """Returns a task, a layout's seed, and which attempt it is.

        An episode that a failure cut short comes before a new one.
        """
        session = self._session
        retry = self._retries.take(self._config.name)
        if retry is not None and retry.task_id in session.tasks:
            self.counts["retried"] += 1
            return session.tasks[retry.task_id], retry.seed, retry.attempts + 1
        if retry is not None:  # of another run's tasks
            self.counts["given_up"] += 1
        return session.sampler.next(self._client.task_weights), session.next_layout(), 1

    def _wait_for_judge(self, episode: Episode) -> bool:
        """Puts an episode aside whose judge did not know; False if it is none, or can't be."""
        asked = self._session.environment.unsettled
        if self._waiting is None or not asked or not episode.cause.startswith(f"{JUDGE}:"):
            return False
        if len(asked[-1].decisions) != len(episode):  # some steps are not recorded
            return False
        self._waiting.put(episode, asked)
        self.counts["waiting"] += 1
        return True

    def _send_judged(self) -> None:
        """Sends the oldest episode that waited for its judge, if that has come."""
        episode = self._waiting.poll(self._judge) if self._waiting is not None else None
        if self._waiting is None or episode is None:
            return
        config = self._config
        signed = dataclasses.replace(episode, actor=config.name, boot=config.boot, seq=self._seq)
        if self._client.send(signed):
            self._seq += 1
            self.counts["judged_late"] += 1
            self._waiting.remove()

    def _truncated(self, episode: Episode, retry: Retry) -> None:
        cause, _, message = episode.cause.partition(": ")
        if cause != JUDGE:
            self._failed(DeviceError(message, cause), retry)
            return
        self._judge_failures += 1
        logger.warning("The judge failed %d times in a row. %s", self._judge_failures, message)
        if self._judge_failures >= JUDGE_FAILURES:
            raise DeviceError(f"The judge failed {self._judge_failures} times: {message}", JUDGE)

    def _failed(self, error: DeviceError, retry: Retry) -> None:
        """Has the episode played again, and the phone made ready."""
        self.counts["given_up"] += not self._retries.put(retry)
        self._client.heartbeat("recovering", f"{self._report()}: {error}")
        try:
            self._supervisor.failed(error, self._wait)
        finally:
            self._write()

    def _wait(self) -> None:
        """Keeps in touch with the learner while the phone is not to be used."""
        self._client.heartbeat("recovering", self._report())
        self._stop_if_told()

    def _stop_if_told(self) -> None:
        if self._client.pulse.mode is Mode.STOP:
            raise _StoppedError

    def _write(self) -> None:
        if self._writer is not None:
            numbers: dict[str, float] = {
                f"actor/{name}": count for name, count in sorted(self.counts.items())
            }
            numbers |= self._supervisor.metrics()
            self._writer.write(self._seq, time.monotonic() - self._began, numbers)

    def _report(self) -> str:
        """Returns how many of the episodes were successes, and what was lost, in a few words."""
        counts = self.counts
        text = f"{counts['successes']}/{counts['done'] + counts['truncated']} ok"
        told = (
            "truncated",
            "unstarted",
            "skipped",
            "retried",
            "given_up",
            "waiting",
            "judged_late",
        )
        text += "".join(f", {counts[name]} {name}" for name in told if counts[name])
        failures = self._supervisor.failures
        text += "".join(f", {n} {cause}" for cause, n in failures.most_common(3))
        if waiting := self._client.waiting:
            text += f", {waiting} in the spool"
        extract = self._session.extract
        if isinstance(extract, vision.Cached):
            text += f", {extract.hits}/{extract.hits + extract.misses} screens known"
        return text
