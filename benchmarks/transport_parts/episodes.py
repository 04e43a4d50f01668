"""Episodes of many actors to the data socket's process: encrypted, journalled, acknowledged.

Actors are sockets that keep as much under way as the learner gives them credit for; they have no
spool, which would write to the learner's disk here. Beside it, in the same run, what a bare socket
of this machine carries, and what its disk takes when it is synced for every group.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kill_parts import still
from common import keys
from common.codec import EpisodeSpec, encode_episode
from learner.ingest_process import IngestProcess

ROOT = Path(__file__).resolve().parents[2]
SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=4096)
PROCESSES = 4
SIZES = {70_000: (4096, 512), 600_000: (768, 192)}  # bytes: episodes of all actors, and of one
MANY = 64
RAW_BYTES = 2**30

# Arguments: address, keys, folder with the message, first actor, actors, episodes of each.
_ACTORS = """
import collections, pathlib, sys, time
import msgpack, zmq
from common import channel, messages
from common.keys import ActorKeys

address, made, folder, first, count, episodes = *sys.argv[1:4], *map(int, sys.argv[4:])
fields = msgpack.unpackb(pathlib.Path(folder, "header").read_bytes())
body = pathlib.Path(folder, "body").read_bytes()
context, known, poller = channel.context(), ActorKeys.load(pathlib.Path(made)), zmq.Poller()
left, under_way, credit, names = {}, collections.Counter(), {}, {}

def send(link, seq):
    link.send_multipart([msgpack.packb(fields | {"actor": names[link], "seq": seq}), body])

for number in range(first, first + count):
    link = channel.dealer(context, address, keys=known)
    names[link], left[link] = f"actor-{number}", collections.deque(range(episodes))
    hello = {"actor": names[link], "boot": fields["boot"], "device": "", "can_demonstrate": False}
    link.send_multipart(messages.pack("HELLO", hello))
    header, _ = messages.unpack(link.recv_multipart())
    credit[link] = header.integer("credit_episodes")
    poller.register(link, zmq.POLLIN)
print(flush=True)
sys.stdin.readline()
retries, waiting = 0, sum(map(len, left.values()))
while waiting:
    for link, seqs in left.items():
        while seqs and under_way[link] < credit[link]:
            send(link, seqs.popleft())
            under_way[link] += 1
    for link, _ in poller.poll(1000):
        header, _ = messages.unpack(link.recv_multipart())
        under_way[link] -= 1
        if header.type == "ACK":
            waiting -= 1
            credit[link] = header.integer("credit_episodes")
        else:
            assert header.type == "RETRY_AFTER", header.type
            retries += 1
            left[link].append(header.integer("seq"))
            credit[link] = 1
print(retries)
"""

# Arguments: port, bytes.
_RAW = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    left, data = int(sys.argv[2]), bytes(600_000)
    while left > 0:
        connection.sendall(data)
        left -= len(data)
"""


def run() -> Iterator[dict[str, Any]]:
    """Yields a row for each size, after one for the machine."""
    raw, disk = _raw_mb_per_s(), _disk_mb_per_s()
    yield {"name": "machine", "raw_mb_per_s": round(raw), "disk_mb_per_s": round(disk)}
    for size, (count, count_alone) in SIZES.items():
        per_s, cpu_ms, retries = _carry(size, MANY, count // MANY)
        _, cpu_alone_ms, _ = _carry(size, 1, count_alone)
        yield {
            "name": "episodes",
            "kb": size // 1000,
            "actors": MANY,
            "per_s": round(per_s, 1),
            "mb_per_s": round(per_s * size / 1e6, 1),
            "of_raw": round(per_s * size / 1e6 / raw, 3),
            "retries": retries,
            "ingest_cpu_ms": round(cpu_ms, 3),
            "ingest_cpu_ms_of_one": round(cpu_alone_ms, 3),
            "cpu_ratio": round(cpu_ms / cpu_alone_ms, 2),
        }


def _carry(size: int, actors: int, episodes: int) -> tuple[float, float, int]:
    """Returns episodes a second, CPU milliseconds of the data socket for each, and retries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys.create(folder / "keys", ["bench"])
        made = still.episode("", "b", 0, expert=False, version=1, lineage=1, size=size)
        header, body = encode_episode(made, run="r")
        (folder / "header").write_bytes(header)
        (folder / "body").write_bytes(body)
        welcome = {"run": "r", "params_port": 1, "settings": {}}
        learner_keys = str(folder / "keys" / "learner")
        with IngestProcess(
            folder / "journal", "tcp://127.0.0.1:0", SPEC, welcome, "", keys=learner_keys
        ) as ingest:
            per_process = -(-actors // PROCESSES)
            senders = [
                _start(
                    _ACTORS,
                    f"tcp://127.0.0.1:{ingest.port}",
                    str(folder / "keys" / "bench"),
                    name,
                    *map(str, (first, min(per_process, actors - first), episodes)),
                )
                for first in range(0, actors, per_process)
            ]
            for sender in senders:
                assert sender.stdout is not None
                sender.stdout.readline()
            cpu_s, began = _cpu_s(ingest.pid), time.perf_counter()
            for sender in senders:
                assert sender.stdin is not None
                sender.stdin.write("go\n")
                sender.stdin.flush()
            end = 0
            while end < actors * episodes:
                end = ingest.wait(end, 1.0)
                ingest.consumed(end)
                ingest.retain(np.zeros(0, np.int64), end)
            seconds = time.perf_counter() - began
            cpu_s = _cpu_s(ingest.pid) - cpu_s
            retries = sum(int(sender.communicate()[0]) for sender in senders)
    return end / seconds, 1000 * cpu_s / end, retries


def _raw_mb_per_s() -> float:
    """Returns what as many bare sockets carry from as many processes to one that only reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=MANY) as server:
        port = str(server.getsockname()[1])
        share = str(RAW_BYTES // PROCESSES)
        senders = [_start(_RAW, port, share) for _ in range(PROCESSES)]
        buffer, received, began = bytearray(2**20), 0, 0.0
        with selectors.DefaultSelector() as selector:
            for _ in senders:
                connection, _ = server.accept()
                selector.register(connection, selectors.EVENT_READ)
            began = time.perf_counter()
            while selector.get_map():
                for key, _ in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    count = key.fileobj.recv_into(buffer)
                    received += count
                    if not count:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
            seconds = time.perf_counter() - began
        for sender in senders:
            sender.communicate()
    return received / seconds / 1e6


def _disk_mb_per_s() -> float:
    """Returns what the disk takes in groups of 4 MB with a sync for each."""
    data, groups = bytes(4 * 10**6), 32
    with tempfile.TemporaryFile() as file:
        began = time.perf_counter()
        for _ in range(groups):
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
        return groups * len(data) / (time.perf_counter() - began) / 1e6


def _start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _cpu_s(pid: int) -> float:
    """Returns the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
