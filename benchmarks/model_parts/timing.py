"""Times that can be compared: taken in turn in one run, with equal threads."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def medians(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Returns the median seconds of each way; all are called once before, and then in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call()
    for _ in range(rounds):
        for name, call in ways.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def threads() -> int:
    """Returns how many cores this process may use, which is how many threads XLA takes."""
    return len(os.sched_getaffinity(0))
