"""An actor's life: connect to the learner, do what it asks for, send what came of it."""

from __future__ import annotations

import collections
import dataclasses
import logging

from actors.client import LearnerClient
from actors.device.adb import AdbDevice
from actors.evaluators.verdict import Judge
from actors.rollout import Agent, Signature, run_episode
from actors.session import Session
from actors.waiting import Waiting
from common.channel import Mode
from common.errors import ConfigError, DeviceError
from common.models import vision
from common.types import Ending, Episode, Version

logger = logging.getLogger(__name__)

IDLE_S = 0.05
QUIET_S = 6.0  # three answers missed: the learner is away, and episodes would only pile up
DEVICE_FAILURES = 5  # in a row, each followed by a wait for the phone to come back
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
      ready_timeout_s: How long to wait for a phone that failed.
      settle_s: Wait before each screenshot; None is what the kind of phone needs.
    """

    name: str
    boot: str
    seed: int = 0
    connect_timeout_s: float = 60.0
    lost_timeout_s: float = 120.0
    ready_timeout_s: float = 60.0
    settle_s: float | None = None


class _StoppedError(Exception):
    """The learner says stop in the middle of an episode."""


class Actor:
    """One phone's working loop."""

    def __init__(
        self,
        client: LearnerClient,
        device: AdbDevice,
        judge: Judge,
        config: ActorConfig,
        extractor: vision.Extractor = vision.extractor,
        waiting: Waiting | None = None,
    ):
        """Takes a place for episodes whose judge can't be asked; without one they are truncated."""
        self._waiting = waiting
        self._client = client
        self._device = device
        self._judge = judge
        self._config = config
        self._extractor = extractor
        self._session: Session
        self._seq = 0
        self._failures = 0
        self._counts: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        """Works until the learner says stop.

        Raises:
          ConfigError: The learner is not there, went away for too long, or wants what can't be.
          DeviceError: The phone failed for good.
        """
        self._client.connect(self._config.connect_timeout_s)
        self._session = self._open()
        try:
            while (mode := self._mode()) is not Mode.STOP:
                if self._client.welcome.config_id != self._session.config_id:
                    self._session = self._open()
                self._send_judged()
                agent = self._agent(mode)
                if agent is None or (self._waiting is not None and self._waiting.full):
                    self._client.heartbeat("waiting", self._report())
                    self._client.poll(IDLE_S)
                else:
                    self._play(agent, "exploring" if mode is Mode.EXPLORE else "demonstrating")
        except _StoppedError:
            pass
        logger.info("The learner is done; so is this actor. %s.", self._report())

    def _open(self) -> Session:
        welcome, config = self._client.welcome, self._config
        logger.info("Joined run %s.", welcome.run)
        return Session(
            welcome,
            self._device,
            self._judge,
            config.name,
            config.seed,
            config.settle_s,
            self._client.pulse.version.lineage,
            self._extractor,
        )

    def _mode(self) -> Mode:
        """Returns what the learner wants; while it is away, to wait."""
        self._client.poll()
        lost_s = self._client.lost_s
        if lost_s > self._config.lost_timeout_s:
            raise ConfigError(
                f"The learner has been silent for {lost_s:.0f} s. Start it again, then this actor."
            )
        return Mode.WAIT if lost_s > QUIET_S else self._client.pulse.mode

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
        return session.explorer if session.version is not None else None

    def _play(self, agent: Agent, state: str) -> None:
        """Runs an episode and sends it."""
        session, config = self._session, self._config
        task = session.sampler.next(self._client.task_weights)

        def on_step() -> None:
            self._client.heartbeat(state, f"{self._report()}: {task.goal}")
            if self._client.pulse.mode is Mode.STOP:
                raise _StoppedError

        try:
            episode = run_episode(
                session.environment,
                agent,
                task,
                session.next_layout(),
                Signature(config.name, config.boot, self._seq),
                lineage=(session.version or self._client.pulse.version).lineage,
                temperature=session.settings.sampling.temperature,
                keep_screens=session.keeps_screens(self._seq),
                on_step=on_step,
            )
        except DeviceError as error:
            self._recover(str(error))
            return
        if episode is None:
            self._counts["skipped"] += 1
            return
        if self._wait_for_judge(episode):
            return
        self._counts["episodes"] += 1
        self._counts["successes"] += episode.success
        if self._client.send(episode):
            self._seq += 1
        if episode.ending is Ending.TRUNCATED:
            self._counts["truncated"] += 1
            self._recover(episode.cause)
            return
        self._failures = 0
        if agent is session.explorer:
            session.sampler.report(task, episode.success)

    def _wait_for_judge(self, episode: Episode) -> bool:
        """Puts an episode aside whose judge did not know; False if it is none, or can't be."""
        asked = self._session.environment.unsettled
        if self._waiting is None or not asked or not episode.cause.startswith("judge:"):
            return False
        if len(asked[-1].decisions) != len(episode):  # some steps are not recorded
            return False
        self._waiting.put(episode, asked)
        self._counts["waiting"] += 1
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
            self._counts["judged late"] += 1
            self._waiting.remove()

    def _recover(self, cause: str) -> None:
        """Waits until the phone works again, but gives up on one that fails again and again."""
        self._failures += 1
        logger.warning("Failure %d of %d in a row. %s", self._failures, DEVICE_FAILURES, cause)
        if self._failures >= DEVICE_FAILURES:
            raise DeviceError(f"The phone or its judge failed {self._failures} times: {cause}")
        self._client.heartbeat("recovering", f"{self._report()}: {cause}")
        self._device.wait_ready(self._config.ready_timeout_s)

    def _report(self) -> str:
        """Returns how many of the episodes were successes, and what was lost, in a few words."""
        counts = self._counts
        text = f"{counts['successes']}/{counts['episodes']} ok"
        text += "".join(
            f", {counts[name]} {name}"
            for name in ("truncated", "skipped", "waiting", "judged late")
            if counts[name]
        )
        extract = self._session.extract
        if isinstance(extract, vision.Cached):
            text += f", {extract.hits}/{extract.hits + extract.misses} screens known"
        return text
