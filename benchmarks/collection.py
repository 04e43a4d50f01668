"""Asynchronous and synchronous collection by the same actors: python benchmarks/collection.py [N]

Simulated phones whose apps and pages take heavy-tailed times (log-normal, median .8 s, mean 1.3 s,
times TIME_FACTOR), a policy of fixed cost, and a learner that costs nothing: in a synchronous round
each actor plays one episode and waits for the slowest. One JSON line for each number of phones.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from actors.device.adb import AdbDevice
from actors.device.emulator import Attached
from actors.retries import Retries
from actors.supervise import Budget
from benchmarks import rig
from common.channel import Mode

TIME_FACTOR = 0.3
COST_S = 0.015  # of an action: 50 ms at the phones' own speed


class TimedDevice(AdbDevice):
    """Knows for how long it was at work."""

    busy_s = 0.0

    def __init__(self, serial: str, port: int):
        super().__init__(serial, port=port)
        shell = self.server.shell

        def timed(serial: str, command: str, timeout_s: float) -> tuple[bytes, bytes, int]:
            began = time.monotonic()
            try:
                return shell(serial, command, timeout_s)
            finally:
                self.busy_s += time.monotonic() - began

        self.server.shell = timed  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phones", nargs="*", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of both modes")
    args = parser.parse_args()
    flags = ("--width", "120", "--height", "214", "--time-factor", str(TIME_FACTOR))
    for count in args.phones:
        with rig.phones(count, *flags) as (port, serials, _):
            free = collect(serials, port, args.seconds, synchronous=False)
            rounds = collect(serials, port, args.seconds, synchronous=True)
        row = {
            "name": "collection",
            "phones": count,
            "async_per_minute": round(free[0], 1),
            "sync_per_minute": round(rounds[0], 1),
            "async_over_sync": round(free[0] / rounds[0], 3),
            "utilisation": round(free[1], 4),
            "sync_utilisation": round(rounds[1], 4),
            "time_factor": TIME_FACTOR,
            "policy_ms": COST_S * 1000,
        }
        print(json.dumps(row), flush=True)
    return 0


def collect(
    serials: list[str], port: int, seconds: float, synchronous: bool
) -> tuple[float, float]:
    """Collects for a while after the first episodes, or for whole rounds.

    Returns:
      Episodes a minute, and the share of the time in which a phone was at work.
    """
    learner = rig.Learner(len(serials))
    devices = [TimedDevice(serial, port) for serial in serials]
    with tempfile.TemporaryDirectory() as folder:
        retries = Retries(pathlib.Path(folder))
        actors = [
            rig.ThreadActor(i, Attached(device), learner, retries, COST_S, synchronous, Budget())
            for i, device in enumerate(devices)
        ]
        threads = rig.started(actors, on_error=lambda: None)
        _until(lambda: len(learner.rounds) >= 1, seconds * 5)  # every phone has played
        began, busy_s = time.monotonic(), sum(device.busy_s for device in devices)
        before, first_round = len(learner.arrivals), learner.rounds[-1]
        _until(lambda: time.monotonic() > began + seconds, seconds * 2)
        if synchronous:  # to the end of a round
            rounds = len(learner.rounds)
            _until(lambda: len(learner.rounds) > rounds, seconds * 5)
            began, ended = first_round, learner.rounds[-1]
        else:
            ended = time.monotonic()
        episodes = len(learner.arrivals) - before
        busy_s = sum(device.busy_s for device in devices) - busy_s
        learner.mode = Mode.STOP
        for thread in threads:
            thread.join(60.0)
        for actor in actors:
            if actor.error is not None:
                raise actor.error
    wall_s = ended - began
    return episodes / wall_s * 60, busy_s / wall_s / len(serials)


def _until(condition, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the phones are too slow")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
