"""Many episodes on phones that fail: python benchmarks/soak.py [--episodes 500] [--phones 8]

Every fault happens now and then; what counts is that the run ends by itself, that every episode is
accounted for, and that memory stays. One JSON line.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import pathlib
import sys
import tempfile
import time
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from actors.device.adb import AdbDevice
from actors.device.emulator import Attached
from actors.retries import Retries
from actors.supervise import Budget
from benchmarks import rig
from common.channel import Mode

TIMEOUT_S = 1.0  # of a command
LIMIT_S = 900.0
ENDS = ("done", "truncated", "unstarted", "skipped", "stopped")
PICTURES = ("png_cut", "png_crlf", "png_empty", "png_failed", "png_warning")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--phones", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.02, help="of faults, for each step")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    print(json.dumps(soak(args.episodes, args.phones, args.rate)), flush=True)
    return 0


def soak(episodes: int, count: int, rate: float) -> dict[str, Any]:
    """Plays until so many episodes were delivered; returns the account."""
    # A step has four commands, any of which may meet one of three faults.
    rates = dict.fromkeys(("hang", "cut", "drop"), rate / 12)
    rates |= dict.fromkeys((*PICTURES, "anr", "no_views", "lost_text", "no_focus"), rate)
    faults = ",".join(f"{name}={share:g}" for name, share in rates.items())
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        rig.phones(count, "--width", "120", "--height", "214", "--faults", faults) as system,
    ):
        port, serials, phones_pid = system
        learner = rig.Learner(count)
        queues = [Retries(pathlib.Path(folder), patience_s=1.0) for _ in serials]
        budget = Budget(in_a_row=8, an_hour=10_000, backoff_s=0.05)
        owners = [
            Attached(AdbDevice(serial, port=port, timeout_s=TIMEOUT_S), ready_timeout_s=20.0)
            for serial in serials
        ]
        actors = [
            rig.ThreadActor(i, owner, learner, queue, 0.0, False, budget)
            for i, (owner, queue) in enumerate(zip(owners, queues, strict=True))
        ]
        threads = rig.started(actors, on_error=lambda: None)
        early: dict[str, float] = {}
        while len(learner.arrivals) < episodes and any(t.is_alive() for t in threads):
            if not early and len(learner.arrivals) >= episodes // 5:
                early = memory_mb(phones_pid)
            if time.monotonic() - began > LIMIT_S:
                raise TimeoutError(f"{len(learner.arrivals)} of {episodes} after {LIMIT_S:g} s")
            time.sleep(0.02)
        late = memory_mb(phones_pid)
        learner.mode = Mode.STOP
        for thread in threads:
            thread.join(60.0)
        waiting = len(queues[0])
    counts: collections.Counter[str] = collections.Counter()
    failures: collections.Counter[str] = collections.Counter()
    for actor in actors:
        counts += actor.counts
        failures += actor._supervisor.failures
    return {
        "name": "soak",
        "phones": count,
        "rate": rate,
        "wall_s": round(time.monotonic() - began, 1),
        "begun": counts["begun"],
        **{end: counts[end] for end in ENDS},
        "accounted": counts["begun"] == sum(counts[end] for end in ENDS),
        "delivered": len(learner.arrivals),
        "retried": counts["retried"],
        "given_up": counts["given_up"],
        "waiting": waiting,
        "retries_accounted": counts["truncated"] + counts["unstarted"]
        == counts["retried"] + counts["given_up"] + waiting,
        "failures": dict(failures.most_common()),
        "ended_actors": [str(actor.error) for actor in actors if actor.error],
        "hung_threads": sum(thread.is_alive() for thread in threads),
        "memory_mb_early": early,
        "memory_mb_late": late,
    }


def memory_mb(phones_pid: int) -> dict[str, float]:
    """Returns the resident memory of the actors' process and of the phones'."""
    return {"actors": _rss_mb("self"), "phones": _rss_mb(str(phones_pid))}


def _rss_mb(process: str) -> float:
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("VmRSS")).split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
