"""The learner's data socket: takes episodes in, once each, and tells the actors what to do."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import logging
import secrets
import threading
import time
from typing import Any

import numpy as np

from common import channel, errors, messages
from common.channel import Kind, Mode, Pulse
from common.codec import EpisodeSpec, decode_episode
from common.types import Episode, Version
from learner.service import Service

logger = logging.getLogger(__name__)

MAX_PEERS = 4096  # connections and boots that are remembered; the longest silent one goes first
MAX_AHEAD = (
    1024  # remembered numbers of a boot behind a gap, many times what an actor has under way
)
RETRY_AFTER_S = 0.5


@dataclasses.dataclass
class ActorStatus:
    """What is known of an actor; of several starts under one name, the one heard last."""

    actor: str
    boot: str
    device: str
    can_demonstrate: bool
    last_seen: float  # monotonic clock
    state: str = "new"
    detail: str = ""
    version: tuple[int, int] | None = None  # lineage and step of its parameters
    episodes: int = 0  # delivered, as the actor counts them

    def to_dict(self, now: float) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        fields["last_seen_s"] = round(now - fields.pop("last_seen"), 3)
        return fields


class Seen:
    """The episode numbers of one boot that have been delivered.

    Numbers have no gaps, so they are all those up to one, and a few above it.
    """

    def __init__(self) -> None:
        self._below = 0  # all numbers below have been seen
        self._ahead: set[int] = set()

    def __contains__(self, seq: int) -> bool:
        return seq < self._below or seq in self._ahead

    def add(self, seq: int) -> None:
        self._ahead.add(seq)
        if len(self._ahead) > MAX_AHEAD:  # a refused episode, or one before this learner's life
            self._below = min(self._ahead)
        while self._below in self._ahead:
            self._ahead.remove(self._below)
            self._below += 1


class Ingest(Service):
    """Receives, checks, acknowledges and queues episodes.

    What an actor was told is delivered is in the queue; over the queue's budget it is told to come
    again later. The socket is always read, so a slow learner never blocks heartbeats.

    Counters: received (messages), hellos, heartbeats, accepted, duplicates, retry_after,
    unknown_peers, refused and refused/CODE, replies_lost (the peer was gone).
    """

    def __init__(
        self,
        address: str,
        spec: EpisodeSpec,
        welcome: dict[str, Any],
        body: bytes = b"",
        capacity_episodes: int = 512,
        capacity_bytes: int = 512 * 1024 * 1024,
        insecure: bool = False,
    ):
        """Binds; `start` begins to answer.

        Args:
          address: "tcp://host:port"; port 0 takes a free one, see `port`.
          spec: The sizes that episodes must have.
          welcome: "run" (name), "params_port", "settings" (a small JSON-able dict) for the actors.
          body: What is too large for settings, such as the tokenizer.
          capacity_episodes: Budget of the queue, in episodes.
          capacity_bytes: Budget of the queue, in bytes.
          insecure: Whether other hosts than loopback may be bound.
        """
        settings = json.dumps(welcome["settings"], sort_keys=True)
        config_id = hashlib.sha256(settings.encode() + b"\0" + body).hexdigest()[:16]
        self._spec = spec
        self._welcome = {
            "params_port": int(welcome["params_port"]),
            "heartbeat_s": float(welcome.get("heartbeat_s", channel.HEARTBEAT_S)),
            "settings": json.loads(settings),
        }
        self._welcome_body = body
        self._pulse = Pulse(
            welcome["run"], secrets.token_hex(8), Version(0, -1), Mode.WAIT, config_id
        )
        messages.pack(Kind.WELCOME, self._pulse.to_fields() | self._welcome, body)  # fits the caps
        self._capacity_episodes = capacity_episodes
        self._capacity_bytes = capacity_bytes
        self._status = b"{}"
        self._task_weights = b""
        self._actors: dict[str, ActorStatus] = {}
        self._peers: collections.OrderedDict[bytes, ActorStatus] = collections.OrderedDict()
        self._seen: collections.OrderedDict[tuple[str, str], Seen] = collections.OrderedDict()
        self._queue: collections.deque[tuple[Episode, int]] = collections.deque()
        self._queued_bytes = 0
        super().__init__(address, insecure)
        self._arrived = threading.Condition(self._lock)

    def get(self, timeout_s: float) -> Episode | None:
        """Returns the oldest episode, or None if there is none within that time."""
        self.check()
        with self._arrived:
            self._arrived.wait_for(lambda: self._queue, timeout_s)
            return self._pop() if self._queue else None

    def drain(self) -> list[Episode]:
        """Returns all queued episodes without waiting, oldest first; also after `close`."""
        self.check()
        with self._lock:
            return [self._pop() for _ in range(len(self._queue))]

    def set_pulse(self, lineage: int, version: int, mode: Mode | str) -> None:
        """Sets what actors are told: the newest parameters and what to do."""
        with self._lock:
            self._pulse = self._pulse._replace(version=Version(lineage, version), mode=Mode(mode))

    def set_task_weights(self, weights: np.ndarray | None) -> None:
        """Sets how often each task is to be played, float32 [tasks]; None: as actors like."""
        body = channel.pack_weights(weights)
        with self._lock:
            self._task_weights = body

    def set_status(self, status: dict[str, Any]) -> None:
        """Sets what dashboards are told about the learner; NumPy numbers are allowed."""
        encoded = json.dumps(status, default=float).encode()
        with self._lock:
            self._status = encoded

    @property
    def actors(self) -> dict[str, dict[str, Any]]:
        """Returns the actors by name; `last_seen_s` is the time since their last word."""
        now = time.monotonic()
        with self._lock:
            return {name: status.to_dict(now) for name, status in self._actors.items()}

    def _pop(self) -> Episode:
        episode, size = self._queue.popleft()
        self._queued_bytes -= size
        return episode

    def _answer(self, peer: bytes, header: messages.Header, body: bytes) -> list[bytes]:
        kind = header.type
        if kind == Kind.STATUS:
            return self._status_reply()
        if kind == Kind.HELLO:
            return self._hello(peer, header)
        status = self._peers.get(peer)
        if status is None:
            self._count("unknown_peers")
            return messages.pack(Kind.UNKNOWN_PEER, {})
        self._peers.move_to_end(peer)
        with self._lock:
            status.last_seen = time.monotonic()
        if kind == Kind.EPISODE:
            return self._episode(header, body)
        if kind == Kind.HEARTBEAT:
            return self._heartbeat(status, header)
        raise errors.WireError("BAD_SCHEMA", f"This socket has no use for the type {kind!r}.")

    def _hello(self, peer: bytes, header: messages.Header) -> list[bytes]:
        status = ActorStatus(
            actor=header.text("actor", 256),
            boot=header.text("boot", 256),
            device=header.text("device", 256),
            can_demonstrate=header.flag("can_demonstrate"),
            last_seen=time.monotonic(),
        )
        self._count("hellos")
        logger.info("Actor %s says hello, with %s.", status.actor, status.device)
        self._peers[peer] = status
        with self._lock:
            self._actors[status.actor] = status
            if len(self._actors) > MAX_PEERS:
                del self._actors[min(self._actors.values(), key=lambda a: a.last_seen).actor]
            pulse = self._pulse
        if len(self._peers) > MAX_PEERS:
            self._peers.popitem(last=False)
        return messages.pack(Kind.WELCOME, pulse.to_fields() | self._welcome, self._welcome_body)

    def _heartbeat(self, status: ActorStatus, header: messages.Header) -> list[bytes]:
        state, detail = header.text("state", 64), header.text("detail", 256)
        episodes = header.integer("episodes")
        version = None
        if not header.absent("version"):
            version = (header.integer("lineage"), header.integer("version", low=-1))
        with self._lock:
            self._counters["heartbeats"] += 1
            self._actors[status.actor] = status
            status.state, status.detail = state, detail
            status.version, status.episodes = version, episodes
            pulse, weights = self._pulse, self._task_weights
        return messages.pack(Kind.PULSE, pulse.to_fields(), weights)

    def _episode(self, header: messages.Header, body: bytes) -> list[bytes]:
        boot, seq = header.text("boot", 256), header.integer("seq")
        reply = {"boot": boot, "seq": seq}
        seen = self._seen.setdefault((header.text("actor", 256), boot), Seen())
        self._seen.move_to_end((header.text("actor", 256), boot))
        if len(self._seen) > MAX_PEERS:
            self._seen.popitem(last=False)
        if seq in seen:
            self._count("duplicates")
        elif self._is_full(len(body)):
            self._count("retry_after")
            return messages.pack(Kind.RETRY_AFTER, reply | {"delay_s": RETRY_AFTER_S})
        else:
            episode = decode_episode(header, body, self._spec)
            if episode.source == "recorded":  # by whom, an actor can't know: it is for files
                raise errors.WireError("BAD_VALUE", "An actor sends no recorded episodes.")
            seen.add(seq)
            with self._arrived:
                self._queue.append((episode, len(body)))
                self._queued_bytes += len(body)
                self._counters["accepted"] += 1
                self._arrived.notify()
        with self._lock:
            version = self._pulse.version
        return messages.pack(Kind.ACK, reply | {"lineage": version[0], "version": version[1]})

    def _is_full(self, size: int) -> bool:
        """Whether the budget is spent; an empty queue takes an episode of any size."""
        with self._lock:
            return len(self._queue) > 0 and (
                len(self._queue) >= self._capacity_episodes
                or self._queued_bytes + size > self._capacity_bytes
            )

    def _status_reply(self) -> list[bytes]:
        actors, counters = self.actors, self.counters
        with self._lock:
            pulse, learner, queued = self._pulse, self._status, len(self._queue)
        snapshot = pulse.to_fields() | {
            "actors": actors,
            "counters": counters,
            "queued": queued,
            "learner": json.loads(learner),
        }
        return messages.pack(Kind.STATUS_REPLY, {}, json.dumps(snapshot).encode())
