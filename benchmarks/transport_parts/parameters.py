"""Parameters from one learner to the actors of one host, over loopback."""

from __future__ import annotations

import contextlib
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common.types import Version
from learner.publish import Publisher

ROOT = Path(__file__).resolve().parents[2]
BIG, SMALL = 250 * 2**20, 2 * 2**20  # bytes on the wire, in bfloat16
ACTORS = 16
STEP_SIZE = 700  # of the matrices that stand for the learner's step

# An actor that fetches when it is told to, and computes nothing.
_ACTOR = """
import functools, pathlib, sys, time
from actors.cache import Cache
from actors.download import ParameterReader
from common import channel

connect = functools.partial(channel.dealer, channel.context())
reader = ParameterReader(connect, sys.argv[1], Cache(pathlib.Path(sys.argv[2])))
known = None
print(flush=True)
for _ in sys.stdin:
    began = time.perf_counter()
    known, params = reader.fetch(known, "float32", 300, lambda: None)
    print(time.perf_counter() - began, flush=True)
"""

Actors = list[subprocess.Popen[str]]


def run() -> Iterator[dict[str, Any]]:
    """Yields the rows that `benchmarks/transport.py` names."""
    yield _small()
    yield from _host()


def _small() -> dict[str, Any]:
    """The versions of a small model, one after the other, the first of which warms up."""
    with Publisher("tcp://127.0.0.1:0").start() as publisher, _actors(publisher, 1) as actors:
        publish_s, fetch_s = [], []
        for step in range(12):
            params = _params(SMALL, step)
            began = time.perf_counter()
            publisher.publish(params, Version(1, step))
            publish_s.append(time.perf_counter() - began)
            _tell(actors)
            fetch_s.append(_answer(actors[0]))
    return {
        "name": "params_small",
        "mb": SMALL / 2**20,
        "publish_ms": _ms(publish_s[1:]),
        "fetch_ms": _ms(fetch_s[1:]),
    }


def _host() -> Iterator[dict[str, Any]]:
    """One actor, and then all of a host at once, beside a learner that computes."""
    with Publisher("tcp://127.0.0.1:0").start() as publisher:
        publisher.publish(_params(BIG, 0), Version(1, 0))
        alone_s = []
        for _ in range(3):
            with _actors(publisher, 1) as actors:
                _tell(actors)
                alone_s.append(_answer(actors[0]))
        chunks = publisher.counters["chunks"]
        with _actors(publisher, ACTORS) as actors:
            deadline = time.perf_counter() + 1.0
            before = _anonymous()
            quiet_s, _ = _learn(lambda: time.perf_counter() > deadline)
            _tell(actors)
            busy_s, most = _learn(lambda: all(map(_has_answered, actors)))
            all_s = max(map(_answer, actors))
        downloads = (publisher.counters["chunks"] - chunks) / (chunks / len(alone_s))
    yield {
        "name": "params_host",
        "mb": BIG / 2**20,
        "actors": ACTORS,
        "downloads": round(downloads, 2),
        "alone_s": round(statistics.median(alone_s), 2),
        "all_s": round(all_s, 2),
        "ratio": round(all_s / statistics.median(alone_s), 2),
    }
    yield {
        "name": "params_learner",
        "cores": len(os.sched_getaffinity(0)),  # which the actors share with it here
        "step_ms_quiet": _ms(quiet_s),
        "step_ms_busy": _ms(busy_s),
        "memory_mb": round((most - before) / 2**20, 1),
    }


def _learn(ended: Callable[[], bool]) -> tuple[list[float], int]:
    """Computes steps until something has ended; returns their times and the most memory."""
    matrix, times, most = np.ones((STEP_SIZE, STEP_SIZE), np.float32), list[float](), 0
    while not ended():
        began = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - began)
        most = max(most, _anonymous())
    return times, most


@contextlib.contextmanager
def _actors(publisher: Publisher, count: int) -> Iterator[Actors]:
    """Yields actors of one host that are ready to fetch."""
    with tempfile.TemporaryDirectory() as cache, contextlib.ExitStack() as stack:
        address = f"tcp://127.0.0.1:{publisher.port}"
        command = [sys.executable, "-c", _ACTOR, address, cache]
        actors = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(count)
        ]
        for actor in actors:
            _line(actor)
        yield actors


def _tell(actors: Actors) -> None:
    for actor in actors:
        assert actor.stdin is not None
        actor.stdin.write("fetch\n")
        actor.stdin.flush()


def _has_answered(actor: subprocess.Popen[str]) -> bool:
    return bool(select.select([actor.stdout], [], [], 0)[0])


def _answer(actor: subprocess.Popen[str]) -> float:
    return float(_line(actor))


def _line(actor: subprocess.Popen[str]) -> str:
    assert actor.stdout is not None
    line = actor.stdout.readline()
    if not line:
        raise RuntimeError(f"An actor ended with exit code {actor.wait()}.")
    return line


def _params(size: int, seed: int) -> dict[str, Any]:
    """Returns parameters that have this size on the wire, in sixteen leaves."""
    leaf = np.full(size // 2 // 16, np.float32(seed + 1))
    return {f"layer_{i}": leaf for i in range(16)}


def _anonymous() -> int:
    """Returns the bytes of this process that are no file's: a blob on disk is not among them."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def _ms(times: list[float]) -> float:
    return round(statistics.median(times) * 1000, 1)
