"""Our hot path beside adbutils' own calls, over a real adb server: python benchmarks/device.py

One JSON line for each operation, in milliseconds at the client on a phone of 1080x1920.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import adbutils
import numpy as np

from actors.device.adb import AdbDevice
from benchmarks import rig
from benchmarks.model_parts.timing import threads

BLOCK = 20  # calls
TOP = (0.001, 0.5)  # on the status bar, where a tap changes nothing


def main() -> int:
    with rig.phones(1, "--width", "1080", "--height", "1920") as (port, (serial,), _):
        ours = AdbDevice(serial, port=port)
        theirs = adbutils.AdbClient("127.0.0.1", port).device(serial)
        ours.screenshot()

        def decoded() -> np.ndarray:
            """As much as ours does: adbutils leaves the decoding to who reads the pixels."""
            return np.asarray(theirs.screenshot().convert("RGB"))

        seeds = itertools.count(1)

        def anew() -> None:
            ours.must(f"am broadcast -a org.simphone.RESET --ei seed {next(seeds)}")

        show("tap", 200, ours=lambda: ours.tap(TOP), adbutils=lambda: theirs.click(540, 2))
        show("shell", 200, ours=lambda: ours.shell("true"), adbutils=lambda: theirs.shell("true"))
        show("frame_cached", 60, ours=ours.screenshot, adbutils=decoded)
        show("frame_fresh", 20, anew, ours=ours.screenshot, adbutils=decoded)
    return 0


def show(
    name: str, rounds: int, before: Callable[[], None] = lambda: None, **ways: Callable[[], object]
) -> None:
    """Times the ways block by block and prints a line; what comes before a call is not timed.

    Call by call, each would find the server as the other left it: asleep, after adbutils' waits.
    """
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds // BLOCK):
        for way, call in ways.items():
            for _ in range(BLOCK):
                before()
                began = time.perf_counter()
                call()
                times[way].append((time.perf_counter() - began) * 1000)
    row: dict[str, object] = {"name": name}
    row |= summary(times)
    ours, theirs = np.median(times["ours"]), np.median(times["adbutils"])
    row |= {"ratio": round(float(ours / theirs), 4), "rounds": rounds, "cores": threads()}
    print(json.dumps(row), flush=True)


def summary(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {
        f"{way}_{what}_ms": round(float(np.percentile(taken, share)), 3)
        for way, taken in times.items()
        for what, share in (("p50", 50), ("p95", 95))
    }


if __name__ == "__main__":
    sys.exit(main())
