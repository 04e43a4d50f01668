"""An actor of the kill matrix: python -m benchmarks.kill_parts.actor FOLDER ADDRESS NAME SIZE

It makes up an episode every so often and notes each in FOLDER/NAME.made, before and after it is in
the spool, until FOLDER/stop is there; then it ends once everything was delivered.
"""

from __future__ import annotations

import os
import pathlib
import random
import sys
import uuid

from actors.cache import Cache
from actors.client import LearnerClient
from actors.loop import MAX_WAITING
from actors.spool import Spool
from benchmarks.kill_parts import still
from common.channel import Mode

EPISODES_PER_S = 10.0


def main(folder: str, address: str, name: str, size: str) -> None:
    boot, made = uuid.uuid4().hex, 0
    stop = pathlib.Path(folder, "stop")
    notes = os.open(pathlib.Path(folder, f"{name}.made"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    cache = Cache(pathlib.Path(folder, "cache"))
    with (
        Spool(pathlib.Path(folder, "spool", name)) as spool,
        LearnerClient(address, name, boot, "none", True, spool, cache) as client,
    ):
        client.connect(600.0, lambda _: None)
        while not stop.exists() or client.waiting:
            if client.pulse.version.step > 0 and client.pulse.version != client.version:
                client.fetch(client.version, timeout_s=1.0)
            wanted = client.pulse.mode in (Mode.DEMONSTRATE, Mode.EXPLORE)
            if wanted and client.waiting < MAX_WAITING and not stop.exists():
                lineage, step = client.pulse.version
                expert = client.pulse.mode is Mode.DEMONSTRATE
                episode = still.episode(
                    name, boot, made, expert=expert, version=step, lineage=lineage, size=int(size)
                )
                os.write(notes, f"begun {name}-{boot}-{made:06d}\n".encode())
                client.send(episode)
                os.write(notes, f"made {name}-{boot}-{made:06d}\n".encode())
                made += 1
            client.heartbeat("acting")
            client.poll(random.uniform(0.5, 1.5) / EPISODES_PER_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
