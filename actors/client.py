"""The actor's end of both channels to the learner."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from actors.cache import Cache
from actors.download import ParameterReader
from actors.outbox import UNCONNECTED_RETRY_S, Outbox
from actors.spool import Spool
from actors.welcome import Welcome
from common import channel, errors, messages
from common.channel import Kind, Mode, Pulse
from common.codec import encode_episode
from common.handshakes import Handshakes
from common.keys import ActorKeys
from common.types import Episode, Version

logger = logging.getLogger(__name__)

HELLO_AGAIN_S = 1.0
SAY_EVERY_S = 3.0


class LearnerLost(errors.DistRLError):
    """The learner took nothing for longer than the actor is willing to wait."""


class LearnerClient:
    """Delivers episodes and fetches parameters; single-threaded and owned by the working loop.

    Episodes wait in a spool on the disk until the learner acknowledges them. It says HELLO again
    by itself when the learner was restarted or the connection was lost, and sends what is not
    acknowledged again. Nothing happens outside of calls: `heartbeat` is to be called every second
    or two.
    """

    def __init__(
        self,
        address: str,
        actor: str,
        boot: str,
        device: str,
        can_demonstrate: bool,
        spool: Spool,
        cache: Cache | None = None,
        insecure: bool = False,
        keys: ActorKeys | None = None,
    ):
        """Begins to connect in the background.

        Args:
          address: "tcp://host:port" of the learner's data socket.
          actor: The actor's name.
          boot: Identifies this start of the actor; episodes are numbered within it.
          device: What the actor plays on, for people to read.
          can_demonstrate: Whether it has an expert to play.
          spool: Takes the episodes; of what an earlier actor left there, too, this one delivers.
            The caller closes it, after this.
          cache: The folder of parameters, shared by the actors of this host; by default one of its
            own, which is removed at the end.
          insecure: Whether a learner elsewhere may be talked to without keys.
          keys: What the actor proves itself with, and what it knows the learner by.

        Raises:
          ConfigError: The address is malformed, or it is elsewhere and there are no keys.
        """
        self._host, _ = channel.split_address(address)
        self._address = address
        self._hello = {
            "actor": actor,
            "boot": boot,
            "device": device,
            "can_demonstrate": can_demonstrate,
        }
        self._cache = cache
        self._context = channel.context()
        self._connect = functools.partial(
            channel.dealer, self._context, insecure=insecure, keys=keys
        )
        try:
            self._socket = self._connect(address)
        except errors.ConfigError:
            self._context.term()
            raise
        self._handshakes = Handshakes(self._socket, address, keys)
        self._reader: ParameterReader | None = None
        self._owned = contextlib.ExitStack()
        self._welcome: Welcome | None = None
        self._pulse: Pulse | None = None
        self._is_welcome = False  # on the present connection
        self._hello_at = 0.0
        self._heard_at = time.monotonic()
        self._beat_at = 0.0
        self._state, self._detail = "new", ""
        self._last_seq = -1
        self.version: Version | None = None  # of the parameters fetched last
        self.task_weights: np.ndarray | None = None  # as the learner said last, see `channel`
        self.counters: collections.Counter[str] = collections.Counter()
        self._spool, self._outbox = spool, Outbox(spool, self.counters)

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
    def waiting(self) -> int:
        """How many episodes are not acknowledged yet."""
        return len(self._spool)

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
        """Puts an episode into the spool, from where it is delivered; waits while that is full.

        Returns:
          False if the learner says stop while this waits: then the episode is lost.

        Raises:
          LearnerLost: There is still no room after the time.
          WireError: The episode is over a cap of the protocol.
          ValueError: It isn't this actor's next one.
        """
        if (episode.actor, episode.boot) != (self._hello["actor"], self._hello["boot"]):
            raise ValueError(f"An episode of {episode.actor}/{episode.boot} is not this client's.")
        if episode.seq != self._last_seq + 1:
            raise ValueError(f"Episode {episode.seq} came after {self._last_seq}.")
        frames = encode_episode(episode, run=self.welcome.run)
        deadline = time.monotonic() + timeout_s
        say_at = 0.0
        while not self._spool.put(frames):
            now = time.monotonic()
            state = f"The spool is full: {len(self._spool)} episodes wait for the learner."
            if self.pulse.mode is Mode.STOP:
                self.counters["undelivered"] += 1
                return False
            if now >= deadline:
                raise LearnerLost(
                    f"{state} It took none for {timeout_s:g} s; its last word is "
                    f"{self.lost_s:.0f} s old."
                )
            if now >= say_at:
                say_at = now + SAY_EVERY_S
                logger.warning("%s", state)
            self.heartbeat("spool full", state)
            self.poll(0.1)
        self._last_seq = episode.seq
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
                "spooled": len(self._spool),
                "dead": self.counters["refused"] + self.counters["damaged"],
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
        self._handshakes.check()
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
        while not self._socket.closed and self._spool and time.monotonic() < deadline:
            self.poll(0.1)
        if self._spool:
            logger.warning("%d episodes stay in the spool for the next start.", len(self._spool))
        if self._reader is not None:
            self._reader.close()
        if not self._socket.closed:
            self._handshakes.close()
        self._socket.close(0)
        self._context.term()
        self._owned.close()
        return len(self._spool)

    def _send_due(self) -> None:
        now = time.monotonic()
        if self._is_welcome:
            self._outbox.send_due(lambda frames: channel.send(self._socket, frames))
        elif now >= self._hello_at:
            sent = channel.send(self._socket, messages.pack(Kind.HELLO, self._hello))
            self._hello_at = now + (HELLO_AGAIN_S if sent else UNCONNECTED_RETRY_S)

    def _handle(self, header: messages.Header, body: bytes) -> None:
        kind = header.type
        if kind == Kind.WELCOME:
            self._on_welcome(header, body)
        elif kind == Kind.PULSE:
            self._pulse, self.task_weights = Pulse.from_header(header), channel.unpack_weights(body)
            self._grant(header)
        elif kind == Kind.UNKNOWN_PEER:  # a restarted learner, or another connection to the same
            if self._is_welcome:
                logger.info("The learner doesn't know this actor (any more); saying hello.")
            self._is_welcome = False
        elif kind == Kind.REFUSE:
            self._on_refuse(header)
        elif kind == Kind.ACK:
            self._outbox.acknowledge(header.text("boot"), header.integer("seq"))
            self._grant(header)
        elif kind == Kind.RETRY_AFTER:
            delay_s = header.number("delay_s", high=60.0)
            self._outbox.postpone(header.text("boot"), header.integer("seq"), delay_s)

    def _grant(self, header: messages.Header) -> None:
        """Takes over how much may be under way."""
        self._outbox.grant(header.integer("credit_episodes"), header.integer("credit_bytes"))

    def _on_welcome(self, header: messages.Header, body: bytes) -> None:
        old, pulse = self._welcome, Pulse.from_header(header)
        self._welcome = Welcome.from_message(header, body, self._host, old)
        self._pulse = pulse
        self._is_welcome = True
        self._beat_at = 0.0
        self._grant(header)
        self._outbox.send_again()
        if self._reader is None:
            if self._cache is None:
                folder = self._owned.enter_context(tempfile.TemporaryDirectory())
                self._cache = Cache(pathlib.Path(folder))
            address = self._welcome.params_address
            self._reader = ParameterReader(self._connect, address, self._cache)
        elif old is None or pulse.life != old.life:
            self._reader.reset(self._welcome.params_address)

    def _on_refuse(self, header: messages.Header) -> None:
        code, reason = header.text("code", 64), header.text("reason")
        if self._outbox.refuse(header.text("boot"), header.integer("seq", low=-1), code, reason):
            return
        if not self._is_welcome or code == "BAD_VERSION":
            raise errors.ConfigError(
                f"The learner at {self._address} refuses this actor. {code}: {reason}"
            )
        else:
            self.counters["bad_replies"] += 1
            logger.error("The learner refused a message. %s: %s", code, reason)
