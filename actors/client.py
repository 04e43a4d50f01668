"""The actor's end of both channels to the learner."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from actors.download import ParameterReader
from common import channel, errors, messages
from common.channel import Kind, Mode, Pulse
from common.codec import encode_episode
from common.types import Episode, Version

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 4
RESEND_S = 5.0  # without an answer; answers take milliseconds
HELLO_AGAIN_S = 1.0
SAY_EVERY_S = 3.0
UNCONNECTED_RETRY_S = 0.05


class LearnerLost(errors.DistRLError):
    """The learner took nothing for longer than the actor is willing to wait."""


@dataclasses.dataclass(frozen=True)
class Welcome:
    """The learner's answer to HELLO: everything that an actor needs to know of the run."""

    run: str
    life: str  # one start of the learner
    config_id: str  # changes with settings or body
    params_address: str
    heartbeat_s: float
    settings: dict[str, Any]
    body: bytes
    generation: int  # how many lives of the learner this client has seen before


@dataclasses.dataclass
class _Outgoing:
    """An episode that is not acknowledged yet."""

    frames: list[bytes]
    send_at: float = 0.0


class LearnerClient:
    """Delivers episodes and fetches parameters; single-threaded and owned by the working loop.

    It says HELLO again by itself when the learner was restarted or the connection was lost, and
    sends what is not acknowledged again. Nothing happens outside of calls: `heartbeat` is to be
    called every second or two.
    """

    def __init__(self, address: str, actor: str, boot: str, device: str, can_demonstrate: bool):
        """Begins to connect in the background.

        Args:
          address: "tcp://host:port" of the learner's data socket.
          actor: The actor's name.
          boot: Identifies this start of the actor; episodes are numbered within it.
          device: What the actor plays on, for people to read.
          can_demonstrate: Whether it has an expert to play.

        Raises:
          ConfigError: The address is malformed.
        """
        self._host, _ = channel.split_address(address)
        self._address = address
        self._hello = {
            "actor": actor,
            "boot": boot,
            "device": device,
            "can_demonstrate": can_demonstrate,
        }
        self._context = channel.context()
        self._socket = channel.dealer(self._context, address)
        self._reader: ParameterReader | None = None
        self._welcome: Welcome | None = None
        self._pulse: Pulse | None = None
        self._is_welcome = False  # on the present connection
        self._hello_at = 0.0
        self._heard_at = time.monotonic()
        self._beat_at = 0.0
        self._state, self._detail = "new", ""
        self._in_flight: collections.OrderedDict[int, _Outgoing] = collections.OrderedDict()
        self._last_seq = -1
        self.version: Version | None = None  # of the parameters fetched last
        self.task_weights: np.ndarray | None = None  # as the learner said last, see `channel`
        self.counters: collections.Counter[str] = collections.Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def welcome(self) -> Welcome:
        """The newest; compare `generation` to see that the learner was restarted."""
        assert self._welcome is not None, "connect() comes first"
        return self._welcome

    @property
    def pulse(self) -> Pulse:
        """What the learner said last: `mode`, `version` of the newest parameters, ..."""
        assert self._pulse is not None, "connect() comes first"
        return self._pulse

    @property
    def lost_s(self) -> float:
        """Seconds since the last word from the learner, which speaks when spoken to."""
        return time.monotonic() - self._heard_at

    @property
    def in_flight(self) -> int:
        """How many episodes are not acknowledged yet."""
        return len(self._in_flight)

    def connect(self, timeout_s: float, on_wait: Callable[[str], None] = logger.info) -> Welcome:
        """Says hello until the learner answers.

        Args:
          timeout_s: When to give up.
          on_wait: Called with a sentence every few seconds.

        Raises:
          ConfigError: Nobody answered in time, or the learner refuses this actor.
        """
        begun = time.monotonic()
        say_at = begun + SAY_EVERY_S
        while not self._is_welcome:
            now = time.monotonic()
            if now - begun >= timeout_s:
                raise errors.ConfigError(
                    f"No learner answered at {self._address} within {timeout_s:g} s. "
                    "Start launch/learner.py there, or correct --learner."
                )
            if now >= say_at:
                say_at = now + SAY_EVERY_S
                on_wait(
                    f"Waiting for the learner at {self._address}, {now - begun:.0f} s of "
                    f"{timeout_s:g} s."
                )
            self.poll(min(0.05, timeout_s))
        return self.welcome

    def send(self, episode: Episode, timeout_s: float = 600.0) -> bool:
        """Takes an episode for delivery; waits while too many are not acknowledged yet.

        Returns:
          False if the learner says stop while this waits: then the episode is not sent.

        Raises:
          LearnerLost: It still can't be taken after the time.
          WireError: The episode is over a cap of the protocol.
          ValueError: It isn't this actor's next one.
        """
        if (episode.actor, episode.boot) != (self._hello["actor"], self._hello["boot"]):
            raise ValueError(f"An episode of {episode.actor}/{episode.boot} is not this client's.")
        if episode.seq != self._last_seq + 1:
            raise ValueError(f"Episode {episode.seq} came after {self._last_seq}.")
        frames = encode_episode(episode)
        deadline = time.monotonic() + timeout_s
        while len(self._in_flight) >= MAX_IN_FLIGHT:
            if self.pulse.mode is Mode.STOP:
                self.counters["undelivered"] += 1
                return False
            if time.monotonic() >= deadline:
                raise LearnerLost(
                    f"The learner at {self._address} took no episode for {timeout_s:g} s; its last "
                    f"word is {self.lost_s:.0f} s old."
                )
            self.heartbeat(self._state, f"{len(self._in_flight)} episodes under way")
            self.poll(0.1)
        self._last_seq = episode.seq
        self._in_flight[episode.seq] = _Outgoing(frames)
        self.counters["sent"] += 1
        self.poll()
        return True

    def heartbeat(self, state: str, detail: str = "") -> None:
        """Tells the learner how the working loop is, every `heartbeat_s` and on a new state.

        Doesn't wait; also does what `poll` does.
        """
        now = time.monotonic()
        if self._is_welcome and (now >= self._beat_at or state != self._state):
            self._beat_at = now + self.welcome.heartbeat_s
            self._state, self._detail = state, detail
            fields: dict[str, Any] = {
                "actor": self._hello["actor"],
                "boot": self._hello["boot"],
                "state": state[:64],
                "detail": detail[:256],
                "episodes": self.counters["acked"],
            }
            if self.version is not None:
                fields |= {"lineage": self.version.lineage, "version": self.version.step}
            channel.send(self._socket, messages.pack(Kind.HEARTBEAT, fields))
        self.poll()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Sends what is due and handles what came, waiting that long for the first message.

        Raises:
          ConfigError: The learner refuses this actor.
        """
        self._send_due()
        wait_ms = int(timeout_s * 1000)
        while self._socket.poll(wait_ms):
            wait_ms = 0
            self._heard_at = time.monotonic()
            try:
                self._handle(*messages.unpack(self._socket.recv_multipart()))
            except errors.WireError as error:
                self.counters["bad_replies"] += 1
                logger.warning("The learner's message is malformed. %s", error)
        self._send_due()

    def fetch(
        self, known: Version | None, dtype: str | None = "float32", timeout_s: float = 60.0
    ) -> tuple[Version, dict[str, Any]] | None:
        """Returns the newest parameters, or None; see `ParameterReader.fetch`. Keeps beating."""
        assert self._reader is not None, "connect() comes first"
        reader = self._reader
        fetched = reader.fetch(
            known, dtype, timeout_s, lambda: self.heartbeat(self._state, self._detail)
        )
        if fetched is not None:
            self.version = fetched[0]
            self.counters["fetched"] += 1
        return fetched

    def close(self, timeout_s: float = 5.0) -> int:
        """Waits for outstanding acknowledgements; returns how many never came."""
        deadline = time.monotonic() + timeout_s
        while not self._socket.closed and self._in_flight and time.monotonic() < deadline:
            self.poll(0.1)
        if self._in_flight:
            logger.warning("%d episodes were not acknowledged at the end.", len(self._in_flight))
        if self._reader is not None:
            self._reader.close()
        self._socket.close(0)
        self._context.term()
        return len(self._in_flight)

    def _send_due(self) -> None:
        now = time.monotonic()
        if not self._is_welcome:
            if now >= self._hello_at:
                sent = channel.send(self._socket, messages.pack(Kind.HELLO, self._hello))
                self._hello_at = now + (HELLO_AGAIN_S if sent else UNCONNECTED_RETRY_S)
            return
        for outgoing in self._in_flight.values():
            if now >= outgoing.send_at:
                sent = channel.send(self._socket, outgoing.frames)
                outgoing.send_at = now + (RESEND_S if sent else UNCONNECTED_RETRY_S)

    def _handle(self, header: messages.Header, body: bytes) -> None:
        kind = header.type
        if kind == Kind.WELCOME:
            self._on_welcome(header, body)
        elif kind == Kind.PULSE:
            pulse, weights = Pulse.from_header(header), channel.unpack_weights(body)
            self._pulse, self.task_weights = pulse, weights
        elif kind == Kind.UNKNOWN_PEER:  # a restarted learner, or another connection to the same
            if self._is_welcome:
                logger.info("The learner doesn't know this actor (any more); saying hello.")
            self._is_welcome = False
        elif kind == Kind.REFUSE:
            self._on_refuse(header)
        elif kind in (Kind.ACK, Kind.RETRY_AFTER) and header.text("boot") == self._hello["boot"]:
            seq = header.integer("seq")
            if kind == Kind.RETRY_AFTER and seq in self._in_flight:
                self.counters["retried"] += 1
                delay_s = header.number("delay_s", high=60.0)
                self._in_flight[seq].send_at = time.monotonic() + delay_s
            elif kind == Kind.ACK and self._in_flight.pop(seq, None) is not None:
                self.counters["acked"] += 1

    def _on_welcome(self, header: messages.Header, body: bytes) -> None:
        pulse = Pulse.from_header(header)
        old = self._welcome
        is_new_life = old is None or pulse.life != old.life
        generation = 0 if old is None else old.generation + is_new_life
        self._welcome = Welcome(
            run=pulse.run,
            life=pulse.life,
            config_id=pulse.config_id,
            params_address=f"tcp://{self._host}:{header.integer('params_port', 1, 65535)}",
            heartbeat_s=header.number("heartbeat_s", low=0.01, high=600.0),
            settings=header.get("settings", dict),
            body=body,
            generation=generation,
        )
        self._pulse = pulse
        self._is_welcome = True
        self._beat_at = 0.0
        for outgoing in self._in_flight.values():
            outgoing.send_at = 0.0
        if self._reader is None:
            self._reader = ParameterReader(self._context, self._welcome.params_address)
        elif is_new_life:
            self._reader.reset(self._welcome.params_address)

    def _on_refuse(self, header: messages.Header) -> None:
        code, reason = header.text("code", 64), header.text("reason")
        seq = header.integer("seq", low=-1)
        if self._in_flight.pop(seq, None) is not None:
            self.counters["refused"] += 1
            self.counters[f"refused/{code}"] += 1
            logger.error("The learner refused episode %d for good. %s: %s", seq, code, reason)
        elif not self._is_welcome or code == "BAD_VERSION":
            raise errors.ConfigError(
                f"The learner at {self._address} refuses this actor. {code}: {reason}"
            )
        else:
            self.counters["bad_replies"] += 1
            logger.error("The learner refused a message. %s: %s", code, reason)
