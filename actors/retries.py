"""Episodes that a phone's failure cut short, to be played again, on another phone if there is one.

Without this, failures would bias the data to short and easy tasks.
"""

from __future__ import annotations

import json
import pathlib
import time
import uuid
from typing import NamedTuple

ATTEMPTS = 3  # of one episode in all
LIMIT = 64  # episodes that wait
PATIENCE_S = 10.0  # that an episode waits for another phone than the one that failed


class Retry(NamedTuple):
    """An episode that is to be played again.

    Attributes:
      task_id: Which task.
      seed: Of the phone's layout.
      attempts: How often it was tried.
      actor: Who tried last.
    """

    task_id: str
    seed: int
    attempts: int
    actor: str


class Retries:
    """A queue that the actors of a machine share: a folder with a small file for each episode."""

    def __init__(self, folder: pathlib.Path, patience_s: float = PATIENCE_S):
        """Makes a queue.

        Args:
          folder: Made if it is not there.
          patience_s: How long an episode is kept for another actor than the one that failed.
        """
        self._folder = folder
        self._patience_s = patience_s
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(list(self._folder.glob("*.json")))

    def put(self, retry: Retry) -> bool:
        """Takes an episode in; False if it was tried often enough, or too many wait."""
        if retry.attempts >= ATTEMPTS or len(self) >= LIMIT:
            return False
        path = self._folder / f"{time.time_ns()}-{uuid.uuid4().hex}"
        path.write_text(json.dumps(retry._asdict()))
        path.rename(path.with_suffix(".json"))  # nobody sees half of it
        return True

    def take(self, actor: str) -> Retry | None:
        """Returns the oldest episode that this actor may play; the others then don't get it."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                retry = Retry(**json.loads(path.read_text()))
                age_s = time.time() - path.stat().st_mtime
                if retry.actor == actor and age_s < self._patience_s:
                    continue
                path.unlink()
            except FileNotFoundError:  # another one was faster
                continue
            return retry
        return None
