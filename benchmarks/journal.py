"""What the journal costs an acknowledgement: python benchmarks/journal.py

Clients send episodes through their spools to the data socket's process: at the pace of two local
actors, for the time to an acknowledgement, and as fast as they can. Once with the journal on the
disk, and once in memory, where a sync costs nothing. Prints one JSON line.
"""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import time

import numpy as np
import tyro

from actors.client import LearnerClient
from actors.spool import Spool
from benchmarks.kill_parts import still
from common.codec import EpisodeSpec
from learner.ingest_process import IngestProcess

SPEC = EpisodeSpec(prompt_length=8, action_length=6, image_tokens=4, image_dim=12, vocab_size=64)
MEMORY = "/dev/shm"


@dataclasses.dataclass(frozen=True)
class Args:
    """Measures acknowledgements."""

    clients: int = 2
    """That send in turn."""
    per_s: float = 15.0
    """Episodes a second, of all clients together."""
    size: int = 125_000
    """Bytes of an episode."""
    count: int = 150
    """Episodes at that pace; as many as fast as they can."""


def measure(args: Args, folder: pathlib.Path) -> dict[str, float]:
    """Returns milliseconds to an acknowledgement, and episodes a second at full speed."""
    with contextlib.ExitStack() as stack:
        welcome = {"run": "r", "params_port": 1, "settings": {}}
        ingest = stack.enter_context(
            IngestProcess(folder / "journal", "tcp://127.0.0.1:0", SPEC, welcome, "")
        )
        clients = []
        for number in range(args.clients):
            spool = stack.enter_context(Spool(folder / f"spool-{number}"))
            address = f"tcp://127.0.0.1:{ingest.port}"
            client = LearnerClient(address, f"a{number}", "b", "d", False, spool)
            clients.append(stack.enter_context(client))
            client.connect(20)
        made = [0] * args.clients

        def send(number: int) -> None:
            one = still.episode(
                f"a{number}", "b", made[number], expert=False, version=0, lineage=1, size=args.size
            )
            clients[number].send(one)
            made[number] += 1

        waits = []
        for turn in range(args.count):
            begin = time.monotonic()
            send(turn % args.clients)
            while clients[turn % args.clients].waiting:
                clients[turn % args.clients].poll(0.001)
            waits.append(time.monotonic() - begin)
            ingest.consumed(ingest.wait(0, 0.0))
            time.sleep(max(0.0, 1 / args.per_s - waits[-1]))
        begin = time.monotonic()
        for turn in range(args.count):
            send(turn % args.clients)
        while any(client.waiting for client in clients):
            for client in clients:
                client.poll(0.001)
            ingest.consumed(ingest.wait(0, 0.0))
        per_s = args.count / (time.monotonic() - begin)
    return {
        "ack_ms_median": round(float(np.median(waits)) * 1e3, 2),
        "ack_ms_p95": round(float(np.quantile(waits, 0.95)) * 1e3, 2),
        "episodes_per_s": round(per_s, 1),
    }


def main() -> None:
    args = tyro.cli(Args)
    results = {}
    for name, place in (("disk", None), ("memory", MEMORY)):
        with tempfile.TemporaryDirectory(dir=place) as folder:
            results[name] = measure(args, pathlib.Path(folder))
    ratio = results["disk"]["ack_ms_median"] / results["memory"]["ack_ms_median"]
    line = {"name": "journal", "size": args.size, **results, "ratio": round(ratio, 2)}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
