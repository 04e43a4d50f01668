"""The learner's data socket: takes episodes in, once each, and tells the actors what to do."""

from __future__ import annotations

import collections
import hashlib
import json
import logging
import random
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from common import channel, errors, messages
from common.channel import Kind, Mode, Pulse
from common.codec import EpisodeSpec, decode_episode
from common.keys import LearnerKeys
from common.types import Episode, Version
from learner.actor_status import ActorStatus
from learner.budget import Budget
from learner.journal import Journal, JournalFullError
from learner.ledger import EpisodeId
from learner.service import Reply, Service

logger = logging.getLogger(__name__)

MAX_PEERS = 4096  # connections and actors that are remembered; the longest silent one goes first
RETRY_AFTER_S = 0.5
FULL_WAIT_S = 2.0  # until a disk that was full is tried again
LIVE_S = 10.0  # an actor that was heard within it gets a share of the credit


class Ingest(Service):
    """Receives, checks, keeps in the journal, and then acknowledges episodes.

    The socket is always read: over the budget of what waits for the learner, and while the disk is
    full, an actor is told to come again later.

    Counters: received (messages), hellos, heartbeats, accepted, duplicates, retry_after,
    journal_full, unknown_peers, refused and refused/CODE, replies_lost (the peer was gone).
    """

    group_size = 64

    def __init__(
        self,
        address: str,
        spec: EpisodeSpec,
        welcome: dict[str, Any],
        journal: Journal,
        body: bytes = b"",
        position: int = 0,
        capacity_episodes: int = 512,
        capacity_bytes: int = 512 * 1024 * 1024,
        max_lag: int = 0,
        insecure: bool = False,
        keys: LearnerKeys | None = None,
    ):
        """Binds; `start` begins to answer.

        Args:
          address: "tcp://host:port"; port 0 takes a free one, see `port`.
          spec: The sizes that episodes must have.
          welcome: "run" (id), "params_port", "settings" (a small JSON-able dict) for the actors.
          journal: Takes the episodes; the caller closes it, after this.
          body: What is too large for settings, such as the tokenizer.
          position: Records of the journal that the learner has read.
          capacity_episodes: Budget of what waits for the learner, in episodes.
          capacity_bytes: The same in bytes.
          max_lag: Refuses episodes of a policy that is so many versions old; 0 takes any.
          insecure: As in `Service`.
          keys: As in `Service`.
        """
        settings = json.dumps(welcome["settings"], sort_keys=True)
        config_id = hashlib.sha256(settings.encode() + b"\0" + body).hexdigest()[:16]
        self._spec, self._max_lag = spec, max_lag
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
        self._status = b"{}"
        self._task_weights = b""
        self._actors: dict[str, ActorStatus] = {}
        self._peers: collections.OrderedDict[bytes, ActorStatus] = collections.OrderedDict()
        self._journal = journal
        self._end, self._consumed = journal.end, min(position, journal.end)
        self._budget = Budget(capacity_episodes, capacity_bytes, self._end - self._consumed)
        self._group: list[int] = []  # sizes of the episodes that are not committed yet
        self._full_until = 0.0  # of the disk; 0 while it has room
        self._live = 1
        super().__init__(address, insecure, keys)
        self._arrived = threading.Condition(self._lock)

    def wait(self, position: int, timeout_s: float) -> int:
        """Returns how many records are committed, at the latest after that time.

        Returns at once when there are more than `position`.
        """
        self.check()
        with self._arrived:
            self._arrived.wait_for(lambda: self._end > position, timeout_s)
            return self._end

    def consumed(self, position: int) -> None:
        """The learner has read the records before `position`: they count no more."""
        with self._lock:
            self._budget.remove(max(position - self._consumed, 0))
            self._consumed = max(position, self._consumed)

    def retain(self, live: Sequence[int], upto: int) -> None:
        """Lets go of the records before `upto` but those that are `live`, ascending numbers."""
        self._journal.retain(np.asarray(live, np.int64), upto)

    def set_pulse(self, lineage: int, version: int, mode: Mode | str) -> None:
        """Sets what actors are told: the newest parameters and what to do."""
        with self._lock:
            self._pulse = self._pulse._replace(version=Version(lineage, version), mode=Mode(mode))

    def set_task_weights(self, weights: Sequence[float] | None) -> None:
        """Sets how often each task is to be played; None: as actors like."""
        body = channel.pack_weights(None if weights is None else np.asarray(weights, np.float32))
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

    def _answer(self, peer: bytes, header: messages.Header, body: bytes) -> Reply:
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
            return self._episode(status, header, body)
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
            told = self._told()
        if len(self._peers) > MAX_PEERS:
            self._peers.popitem(last=False)
        return messages.pack(Kind.WELCOME, told | self._welcome, self._welcome_body)

    def _heartbeat(self, status: ActorStatus, header: messages.Header) -> list[bytes]:
        state, detail = header.text("state", 64), header.text("detail", 256)
        counts = {name: header.integer(name) for name in ("episodes", "spooled", "dead")}
        version = None
        if not header.absent("version"):
            version = (header.integer("lineage"), header.integer("version", low=-1))
        with self._lock:
            self._counters["heartbeats"] += 1
            self._actors[status.actor] = status
            status.state, status.detail = state, detail
            status.version = version
            status.episodes, status.spooled, status.dead = counts.values()
            now = time.monotonic()
            self._live = sum(now - actor.last_seen < LIVE_S for actor in self._actors.values())
            told, weights = self._told(), self._task_weights
        return messages.pack(Kind.PULSE, told, weights)

    def _told(self) -> dict[str, Any]:
        """What every actor is told; under the lock."""
        return self._pulse.to_fields() | self._budget.credit(self._live)

    def _episode(self, status: ActorStatus, header: messages.Header, body: bytes) -> Reply:
        episode_id = EpisodeId.of(header)
        if episode_id.actor != status.actor:
            raise errors.WireError(
                "BAD_VALUE", f"{status.actor} sends an episode of {episode_id.actor}."
            )
        if (run := header.text("run", 256)) != self._pulse.run:
            raise errors.WireError(
                "WRONG_RUN", f"The episode is of the run {run}; this is {self._pulse.run}."
            )
        if episode_id in self._journal:
            self._count("duplicates")
        elif self._has_room(len(body)):
            self._check_source(decode_episode(header, body, self._spec))
            self._journal.append(episode_id, [header.raw, body])
            self._group.append(len(body))
        return lambda: self._acknowledge(episode_id)

    def _acknowledge(self, episode_id: EpisodeId) -> list[bytes]:
        """What is in the journal is acknowledged; what is not has to come again."""
        _, boot, seq = episode_id
        reply: dict[str, Any] = {"boot": boot, "seq": seq}
        if episode_id not in self._journal:
            self._count("retry_after")
            delay_s = FULL_WAIT_S if self._full_until else RETRY_AFTER_S
            # Not all at once: those that were told to wait would come back together.
            return messages.pack(
                Kind.RETRY_AFTER, reply | {"delay_s": delay_s * random.uniform(0.5, 1.5)}
            )
        with self._lock:
            version = self._pulse.version
            reply |= {"lineage": version.lineage, "version": version.step}
            return messages.pack(Kind.ACK, reply | self._budget.credit(self._live))

    def _check_source(self, episode: Episode) -> None:
        """Raises BAD_VALUE for one that no actor has played, and STALE for one that is too old."""
        if episode.source == "recorded":  # by whom, an actor can't know: it is for files
            raise errors.WireError("BAD_VALUE", "An actor sends no recorded episodes.")
        if self._max_lag and episode.source == "policy":
            with self._lock:
                lag = self._pulse.version.step - int(episode.trajectory.version.min())
            if lag > self._max_lag:
                raise errors.WireError(
                    "STALE", f"Its policy is {lag} versions old, more than {self._max_lag}."
                )

    def _has_room(self, size: int) -> bool:
        if time.monotonic() < self._full_until:
            return False
        with self._lock:
            return self._budget.has_room(len(self._group), sum(self._group) + size)

    def _commit(self) -> None:
        sizes, self._group = self._group, []
        if not sizes:
            return
        try:
            self._journal.commit()
        except JournalFullError as error:
            if not self._full_until:
                logger.error("%s Episodes are not taken until there is some.", error)
            self._full_until = time.monotonic() + FULL_WAIT_S
            self._count("journal_full")
            return
        if self._full_until:
            logger.info("There is room on the disk again.")
            self._full_until = 0.0
        with self._arrived:
            for size in sizes:
                self._budget.add(size)
            self._counters["accepted"] += len(sizes)
            self._end = self._journal.end
            self._arrived.notify()

    def _refused(self, peer: bytes, code: str) -> None:
        if (status := self._peers.get(peer)) is not None:
            with self._lock:
                status.refused[code] = status.refused.get(code, 0) + 1

    def _describe(self, peer: bytes, name: str) -> str:
        status = self._peers.get(peer)
        return super()._describe(peer, name) if status is None else f"actor {status.actor}"

    def _status_reply(self) -> list[bytes]:
        actors, counters = self.actors, self.counters
        with self._lock:
            pulse, learner, waiting = self._pulse, self._status, len(self._budget)
        snapshot = pulse.to_fields() | {
            "actors": actors,
            "counters": counters,
            "waiting": waiting,
            "journal": {"records": self._end, "full": bool(self._full_until)},
            "learner": json.loads(learner),
        }
        return messages.pack(Kind.STATUS_REPLY, {}, json.dumps(snapshot).encode())
