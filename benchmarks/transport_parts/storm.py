"""Many actors that connect to one learner at once, say hello and fetch its parameters."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common.codec import EpisodeSpec
from common.types import Version
from learner.ingest import Ingest
from learner.journal import Journal
from learner.publish import Publisher

ROOT = Path(__file__).resolve().parents[2]
ACTORS, PROCESSES = 200, 4
SIZE = 1024**2  # numbers of the model, two bytes each on the wire
SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=4096)

# Actors as threads: what is measured is not the start of interpreters.
_ACTORS = """
import json, pathlib, sys, threading, time
from actors.cache import Cache
from actors.client import LearnerClient
from actors.spool import Spool

address, folder, first, count = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:])
cache, seconds = Cache(folder / "cache"), []

def work(name):
    with (
        Spool(folder / name) as spool,
        LearnerClient(address, name, "boot", "none", False, spool, cache) as client,
    ):
        client.connect(60, lambda sentence: None)
        assert client.fetch(None, timeout_s=60) is not None
        seconds.append(time.perf_counter() - began)

print(flush=True)
sys.stdin.readline()
began = time.perf_counter()
threads = [threading.Thread(target=work, args=(f"actor-{first + i}",)) for i in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(seconds))
"""


def run() -> Iterator[dict[str, Any]]:
    """Yields connect_storm."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Publisher("tcp://127.0.0.1:0").start() as publisher,
        Journal(Path(folder, "journal")) as journal,
    ):
        welcome = {"run": "r", "params_port": publisher.port, "settings": {}}
        with Ingest("tcp://127.0.0.1:0", SPEC, welcome, journal).start() as ingest:
            publisher.publish({"w": np.ones(SIZE, np.float32)}, Version(1, 1))
            seconds = _connect(ingest.port, folder)
            hellos, chunks = ingest.counters["hellos"], publisher.counters["chunks"]
    yield {
        "name": "connect_storm",
        "actors": len(seconds),
        "hellos": hellos,
        "chunks": chunks,  # two are the model
        "median_s": round(statistics.median(seconds), 2),
        "slowest_s": round(max(seconds), 2),
    }


def _connect(port: int, folder: str) -> list[float]:
    """Returns how long each actor took from the start of all."""
    share = ACTORS // PROCESSES
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _ACTORS, f"tcp://127.0.0.1:{port}", folder, first, str(share)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in map(str, range(0, ACTORS, share))
    ]
    seconds: list[float] = []
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        seconds += json.loads(process.communicate()[0])
    return seconds
