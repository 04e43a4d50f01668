"""The learner of the kill matrix: python -m benchmarks.kill_parts.learner WORKDIR LISTEN"""

from __future__ import annotations

import functools
import logging
import pathlib
import signal
import sys
import threading
import time

from benchmarks.kill_parts import still
from learner import build
from learner.ingest_process import IngestProcess

SEGMENT_BYTES = 1024 * 1024  # small, so that many are begun and deleted
STEP_S = 0.01


def main(workdir: str, listen: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    build.IngestProcess = functools.partial(IngestProcess, segment_bytes=SEGMENT_BYTES)
    settings = {"reinforce.episodes": 10**9, "checkpoint_every_s": 1.0}
    with still.learner(pathlib.Path(workdir), listen, **settings) as learner:

        def stopped() -> bool:
            time.sleep(STEP_S)
            return ended.is_set()

        learner.run(stopped)


if __name__ == "__main__":
    main(*sys.argv[1:])
