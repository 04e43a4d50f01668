"""What hostile and careless peers cost the data socket's process: its memory, and what it answers.

Each case has a process of its own, with keys, whose largest memory is read at its end. The bound is
the budget of what may wait for the learner and 200 MB.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import random
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import zmq

from benchmarks.kill_parts import still
from common import channel, errors, keys, messages
from common.codec import EpisodeSpec, decode_episode, encode_episode
from learner.ingest_process import IngestProcess

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=4096)
BUDGET_MB = 512
SIZE = 600_000
HANDSHAKES, FRAMES, FUZZED = 10_000, 400, 100_000
PLAIN = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
CURVE = PLAIN.replace(b"NULL\0", b"CURVE")


class Peer:
    """A client with a key that is allowed."""

    def __init__(self, port: int, folder: Path):
        self.context = channel.context()
        known = keys.ActorKeys.load(folder)
        self.socket = channel.dealer(self.context, f"tcp://127.0.0.1:{port}", keys=known)
        self.socket.setsockopt(zmq.SNDTIMEO, 5000)
        fields = {"actor": "a", "boot": "b", "device": "", "can_demonstrate": False}
        self.ask(messages.pack("HELLO", fields))

    def ask(self, frames: list[bytes]) -> messages.Header:
        self.socket.send_multipart(frames)
        assert self.socket.poll(15_000), "no answer"
        return messages.unpack(self.socket.recv_multipart())[0]

    def close(self) -> None:
        self.socket.close(0)
        self.context.term()


class Watch:
    """Looks at the most memory that a process has had, until it is gone or that is enough."""

    def __init__(self, pid: int):
        self._path, self._largest = Path(f"/proc/{pid}/status"), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> int:
        """Returns it in MB."""
        self._ended.set()
        self._thread.join()
        return self._largest // 1024

    def _run(self) -> None:
        while True:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if found := re.search(r"VmHWM:\s+(\d+)", self._path.read_text()):
                    self._largest = max(self._largest, int(found[1]))
            if self._ended.wait(0.01):
                return


def run() -> Iterator[dict[str, Any]]:
    """Yields a row of memory for each case, and one of the answers to fuzzed headers."""
    cases: dict[str, Callable[[int, Path], dict[str, Any]]] = {
        "nothing": lambda port, folder: {},
        "slow_learner": _slow_learner,
        "endless_message_plain": _endless_message,
        "bad_handshakes": _bad_handshakes,
        "400_frames": _many_frames,
        "message_of_1_gb": _too_large,
        "fuzzed_headers": _fuzzed_messages,
    }
    for name, attack in cases.items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            keys.create(folder / "keys", ["peer", "other"])
            with IngestProcess(
                folder / "journal",
                "tcp://127.0.0.1:0",
                SPEC,
                {"run": "r", "params_port": 1, "settings": {}},
                "",
                capacity_bytes=BUDGET_MB * 2**20,
                keys=str(folder / "keys" / "learner"),
            ) as ingest:
                watch = Watch(ingest.pid)
                more = attack(ingest.port, folder / "keys" / "peer")
                deadline = time.monotonic() + 2.0
                while time.monotonic() < deadline:
                    ingest.wait(0, 0.1)
                largest_mb, restarts = watch.stop(), ingest.counters["restarts"]
                with contextlib.closing(Peer(ingest.port, folder / "keys" / "other")):
                    pass  # who is served all the same
        row = {"name": "memory", "case": name, "largest_mb": largest_mb, "restarts": restarts}
        yield row | {"bound_mb": BUDGET_MB + 200} | more
    yield _fuzz()


def _slow_learner(port: int, folder: Path) -> dict[str, Any]:
    """Twice the budget is sent, whatever credit there is, and the learner reads nothing."""
    made = still.episode("a", "b", 0, expert=False, version=1, lineage=1, size=SIZE)
    header, body = encode_episode(made, run="r")
    fields, answers = msgpack.unpackb(header), collections.Counter[str]()
    count = 2 * BUDGET_MB * 2**20 // SIZE
    with contextlib.closing(Peer(port, folder)) as peer:
        for seq in range(count):
            peer.socket.send_multipart([msgpack.packb(fields | {"seq": seq}), body])
            while peer.socket.poll(0 if seq - answers.total() < 16 else 5000):
                answers[messages.unpack(peer.socket.recv_multipart())[0].type] += 1
    return {"answers": dict(answers)}


def _endless_message(port: int, folder: Path) -> dict[str, Any]:
    """A peer without keys sends frames of a message that has no end."""
    return {"sent_mb": _send_frames(port, PLAIN)}


def _send_frames(port: int, greeting: bytes) -> int:
    frame = b"\x03" + (2**20).to_bytes(8, "big") + bytes(2**20)  # long, and more will follow
    ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
    sent = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(2.0)
        with contextlib.suppress(OSError):
            connection.sendall(greeting + ready)
            for _ in range(1000):
                connection.sendall(frame)
                sent += 1
    return sent


def _bad_handshakes(port: int, folder: Path) -> dict[str, Any]:
    """Connections that begin a handshake with nonsense, or stop in the middle of one."""
    rng = random.Random(0)
    for number in range(HANDSHAKES):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 5.0) as connection,
        ):
            connection.sendall(CURVE if number % 2 else PLAIN)
            connection.sendall(b"\x04\xc8\x05HELLO" + rng.randbytes(194))
    return {"handshakes": HANDSHAKES}


def _many_frames(port: int, folder: Path) -> dict[str, Any]:
    """A peer with a key sends a message of many frames."""
    with contextlib.closing(Peer(port, folder)) as peer:
        header = peer.ask([bytes(2**20)] * FRAMES)
        return {"answer": header.text("code", 64)}


def _too_large(port: int, folder: Path) -> dict[str, Any]:
    """A peer with a key sends a message of more than the process may use, which ends it."""
    with contextlib.closing(Peer(port, folder)) as peer:
        peer.socket.send_multipart([bytes(2**20)] * 1000)
        time.sleep(8.0)
    return {}


def _fuzzed_messages(port: int, folder: Path) -> dict[str, Any]:
    """A peer with a key sends nonsense without a pause."""
    answers = collections.Counter[str]()
    with contextlib.closing(Peer(port, folder)) as peer:
        for frames in itertools.islice(_mutations(), FUZZED):
            peer.socket.send_multipart(frames)
            while peer.socket.poll(0):
                answers[messages.unpack(peer.socket.recv_multipart())[0].type] += 1
        return {"answers": dict(answers)}


def _fuzz() -> dict[str, Any]:
    """Decodes mutated episodes: each is refused by a code, or believed; anything else raises."""
    codes = collections.Counter[str]()
    began = time.perf_counter()
    for frames in itertools.islice(_mutations(), FUZZED):
        try:
            decode_episode(*messages.unpack(frames), SPEC)
            codes["believed"] += 1
        except errors.WireError as error:
            codes[error.code] += 1
    per_s = FUZZED / (time.perf_counter() - began)
    return {"name": "fuzz", "headers": FUZZED, "per_s": round(per_s), **dict(codes)}


def _mutations() -> Iterator[list[bytes]]:
    """Yields an episode's message with its header damaged as bytes, or with a value exchanged."""
    rng = random.Random(0)
    made = still.episode("a", "b", 0, expert=False, version=1, lineage=1, size=0)
    header, body = encode_episode(made, run="r")
    fields = msgpack.unpackb(header)
    values = [None, True, -1, 2**63, 1e308, float("nan"), "", "x" * 5000, b"", [], {}, [[]], [{}]]
    while True:
        if rng.random() < 0.5:
            damaged = bytearray(header)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            if rng.random() < 0.2:
                del damaged[rng.randrange(len(damaged)) :]
            yield [bytes(damaged), body]
        else:
            changed = fields | {rng.choice(list(fields)): rng.choice(values)}
            if rng.random() < 0.3:
                columns = [list(column) for column in fields["columns"]]
                rng.choice(columns)[rng.randrange(5)] = rng.choice(values)
                changed = fields | {"columns": columns}
            yield [msgpack.packb(changed), body]
