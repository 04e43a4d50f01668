"""Judging beside acting: the actor goes on while a slow judge looks at an earlier screen."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from actors.evaluators import state
from actors.evaluators.verdict import Judge, Request, Verdict

AHEAD = 3  # screens that may wait for their verdict; then the actor waits too
_WORKERS = 4


class Background:
    """Judges in threads of its own."""

    def __init__(self, judge: Judge, reads_phone: bool):
        """Makes a background judge.

        Args:
          judge: Who judges; from several threads at once.
          reads_phone: It reads the phone's state, which is therefore taken down when it is asked.
        """
        self._judge = judge
        self._reads_phone = reads_phone
        self._pool = ThreadPoolExecutor(_WORKERS, "judge")

    def judge(self, request: Request) -> Verdict:
        return self._judge.judge(request)

    def submit(self, request: Request) -> Future[Verdict]:
        """Asks about what the phone shows now; DeviceError if its state can't be read."""
        if self._reads_phone:
            said = request.shell(state.script(request.task))
            request = dataclasses.replace(request, shell=lambda command: said)
        return self._pool.submit(self._judge.judge, request)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
