"""What is lost and what is doubled when processes die: python benchmarks/kill_matrix.py --rounds 20

A learner that learns nothing (all of it but the mathematics) and actors that make up episodes run
as processes. In each round one of them is killed with SIGKILL at a random moment and started again,
or the network between them is cut or slow for a moment. At the end everything is delivered, and
what the actors made is held against what the learner read, the journal and the replay. Prints one
JSON line; exit code 1 if anything was lost or doubled.
"""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tyro

from benchmarks.kill_parts.proxy import Proxy
from common import channel, ports
from common.guard import guarded

ROOT = pathlib.Path(__file__).resolve().parents[1]
DRAIN_S = 120.0


@dataclasses.dataclass(frozen=True)
class Args:
    """Kills processes of a run, and counts episodes."""

    rounds: int = 20
    """Kills and cuts."""
    actors: int = 8
    """Processes that make episodes."""
    seed: int = 0
    """Of who dies when."""
    longest_s: float = 2.0
    """Longest time between two rounds."""
    size: int = 20_000
    """Bytes that an episode has at least."""


class Matrix:
    """The processes of one run."""

    def __init__(self, args: Args, folder: pathlib.Path, proxy: Proxy, address: str):
        self._args, self.folder, self._proxy = args, folder, proxy
        self._address, self._random = address, random.Random(args.seed)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.rounds: collections.Counter[str] = collections.Counter()

    def start(self, name: str) -> None:
        if name == "learner":
            words = ["learner", self.folder / "run", self._address]
        else:
            through = f"tcp://127.0.0.1:{self._proxy.port}"
            words = ["actor", self.folder, through, name, self._args.size]
        module, *rest = map(str, words)
        command = [sys.executable, "-m", f"benchmarks.kill_parts.{module}", *rest]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                guarded(command),
                cwd=ROOT,
                env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
                stdout=log,
                stderr=log,
            )

    def start_all(self) -> None:
        for name in ("learner", *(f"actor-{i}" for i in range(self._args.actors))):
            self.start(name)
        self._wait(self._is_under_way, "the run to begin")

    def round(self) -> None:
        """Lets some time pass, and then something happen."""
        time.sleep(self._random.uniform(0.0, self._args.longest_s))
        what = self._random.choice(["learner", "ingest", "params", "actor", "actor", "cut", "slow"])
        self.rounds[what] += 1
        match what:
            case "learner":
                self._kill("learner")
            case "ingest":
                self._kill_child("ingest_process")
            case "params":
                self._kill_child("publish_process")
            case "actor":
                self._kill(f"actor-{self._random.randrange(self._args.actors)}")
            case "cut":
                self._proxy.cut(True)
                time.sleep(self._random.uniform(0.0, 1.0))
                self._proxy.cut(False)
            case "slow":
                self._proxy.slow_down(200_000.0)
                time.sleep(1.0)
                self._proxy.slow_down(0.0)

    def finish(self) -> None:
        """Lets the actors deliver what they have, and the learner read and save it."""
        (self.folder / "stop").touch()
        actors = [process for name, process in self._processes.items() if name != "learner"]
        self._wait(lambda: all(process.poll() == 0 for process in actors), "the actors' end")
        self._wait(self._is_idle, "the learner to read")
        self._processes["learner"].terminate()
        self._wait(lambda: self._processes["learner"].poll() == 0, "the learner's end")

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _is_under_way(self) -> bool:
        status = channel.ask_status(self._address, 1.0)
        if status is None or len(status["actors"]) < self._args.actors:
            return False
        return status["learner"].get("phase") == "reinforce"

    def _is_idle(self) -> bool:
        status = channel.ask_status(self._address, 1.0)
        return status is not None and status["waiting"] == 0

    def _kill_child(self, module: str) -> None:
        """Kills the learner's child of that name, if there is one; the learner starts another."""
        learner = self._processes["learner"].pid
        children = pathlib.Path(f"/proc/{learner}/task/{learner}/children").read_text().split()
        for child in map(int, children):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if module in pathlib.Path(f"/proc/{child}/cmdline").read_text():
                    os.kill(child, signal.SIGKILL)

    def _kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()
        self.start(name)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DRAIN_S
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(p.read_text()[-500:] for p in sorted(self.folder.glob("*.log")))
                raise TimeoutError(f"Waited {DRAIN_S:.0f} s for {what}.\n{logs}")
            time.sleep(0.1)


def audit(folder: pathlib.Path) -> dict[str, Any]:
    """Holds what was made against what was read, and the restored replay against both."""
    from benchmarks.kill_parts import still

    begun, made = set[str](), set[str]()
    for path in folder.glob("*.made"):
        for line in path.read_text().splitlines():
            word, name = line.split()
            (begun if word == "begun" else made).add(name)
    lines = (folder / "run" / "episodes" / "episodes.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    stored = collections.Counter(row["episode"] for row in rows)
    with still.learner(folder / "run", "tcp://127.0.0.1:0") as learner:
        replay = learner._memory.replay.save()["positions"].tolist()
        phase, unread = learner.progress.phase, len(rows) - learner.progress.position
    kept = len(replay)
    policy = [row["position"] for row in rows if row["source"] == "policy"]
    right = phase == "reinforce" and kept == 40 and replay == policy[-kept:]
    journal = list((folder / "run" / "journal").glob("*.journal"))
    return {
        "made": len(made),
        "stored": len(stored),
        "lost": len(made - stored.keys()),
        "doubled": sum(count - 1 for count in stored.values()),
        "invented": len(stored.keys() - begun),
        "unread": unread,
        "replay_is_right": right,
        "journal_mb": round(sum(path.stat().st_size for path in journal) / 1e6, 1),
        "lives": json.loads((folder / "run" / "run.json").read_text())["lineage"],
    }


def main() -> int:
    args = tyro.cli(Args)
    began = time.monotonic()
    port = ports.free_port(2)
    with tempfile.TemporaryDirectory() as name, Proxy(port) as proxy:
        matrix = Matrix(args, pathlib.Path(name), proxy, f"tcp://127.0.0.1:{port}")
        try:
            matrix.start_all()
            for _ in range(args.rounds):
                matrix.round()
            matrix.finish()
        finally:
            matrix.close()
        result = audit(matrix.folder)
    print(
        json.dumps(
            {
                "name": "kill_matrix",
                "seed": args.seed,
                "rounds": dict(matrix.rounds),
                **result,
                "seconds": round(time.monotonic() - began, 1),
            }
        )
    )
    wrong = result["lost"] or result["doubled"] or result["invented"] or result["unread"]
    return 1 if wrong or not result["replay_is_right"] else 0


if __name__ == "__main__":
    sys.exit(main())
