"""Episodes whose judge could not be asked: they wait on disk and are judged later."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import time
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from actors.evaluators.verdict import Judge, Request, Status, Verdict
from common import actions
from common.actions import Action
from common.errors import ConfigError
from common.tasks import Check, Task
from common.types import Ending, Episode, Trajectory

logger = logging.getLogger(__name__)

MOST = 200  # episodes
PAUSE_S = 5.0  # after a judge that still does not know


class Waiting:
    """A folder of episodes, each with the screens that no verdict came for.

    Attributes:
      dropped: Episodes that were found to be done at their start, or whose file was damaged.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Takes in what an earlier process left.

        Raises:
          ConfigError: The folder can't be made.
        """
        self._folder, self._most, self._clock = folder, most, clock
        self._next = 0.0
        self._pool = ThreadPoolExecutor(1, "late judge")
        self._running: Future[Episode | None] | None = None
        self.dropped = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"Episodes can't wait in {folder}: {error}.") from error
        self._files = sorted(folder.glob("*.npz"))
        self._number = int(self._files[-1].stem) + 1 if self._files else 0

    def __len__(self) -> int:
        return len(self._files)

    @property
    def full(self) -> bool:
        return len(self) >= self._most

    def put(self, episode: Episode, requests: Sequence[Request]) -> None:
        """Stores an episode that ended without a verdict.

        Args:
          episode: Truncated, all of its steps recorded.
          requests: What the judge did not know, oldest first; the last is of the last screen.
        """
        fields = {
            field.name: getattr(episode, field.name)
            for field in dataclasses.fields(Episode)
            if field.name not in ("trajectory", "screens")
        }
        asked = [list(request.decisions) for request in requests]
        meta = {"episode": fields, "task": dataclasses.asdict(requests[-1].task), "asked": asked}
        arrays: dict[str, Any] = episode.trajectory._asdict()
        arrays |= {f"image_{i}": request.image for i, request in enumerate(requests)}
        path = self._folder / f"{self._number:08d}.npz"
        self._number += 1
        partial = path.with_suffix(".partial")
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with partial.open("wb") as file:
            np.savez_compressed(file, meta=text, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        self._files.append(path)

    def poll(self, judge: Judge) -> Episode | None:
        """Returns the oldest episode once it is judged, without waiting for that.

        `remove` it when it is sent. Raises what the judge raises.
        """
        if self._running is None and self._files and self._clock() >= self._next:
            self._running = self._pool.submit(self.judged, judge)
        if self._running is None or not self._running.done():
            return None
        episode, self._running = self._running.result(), None
        if episode is None:
            self._next = self._clock() + PAUSE_S
        return episode

    def judged(self, judge: Judge) -> Episode | None:
        """Judges the oldest episode; None if nobody knows yet."""
        while self._files:
            try:
                episode, requests = _load(self._files[0])
            except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
                logger.warning("%s is damaged and left out: %r", self._files[0], error)
                self._drop()
                continue
            for request in requests:
                verdict = judge.judge(request)
                if verdict.status is Status.UNKNOWN:
                    return None
                if verdict.status is Status.SUCCESS and not request.decisions:
                    self._drop()  # it was done at the start
                    break
                if verdict.status is Status.SUCCESS:
                    return decided(episode, verdict, len(request.decisions))
            else:
                return decided(episode, verdict, None)
        return None

    def remove(self) -> None:
        """Lets go of the oldest episode."""
        self._files.pop(0).unlink(missing_ok=True)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        self.dropped += 1
        self.remove()


def decided(episode: Episode, verdict: Verdict, steps: int | None) -> Episode:
    """Returns a truncated episode with the end that a late verdict gives it.

    Args:
      episode: All of its steps are recorded.
      verdict: SUCCESS or FAILURE.
      steps: After how many the success was there; None for a failure.
    """
    path = Trajectory(*(np.array(column[:steps]) for column in episode.trajectory))
    path.reward[-1], path.discount[-1], path.mask[-1] = float(steps is not None), 0.0, 1
    last = actions.parse(episode.actions[-1])
    ending = Ending.SUCCESS
    if steps is None:
        gave_up = isinstance(last, Action) and last.is_status
        ending = Ending.GAVE_UP if gave_up else Ending.HORIZON
    return dataclasses.replace(
        episode,
        trajectory=path,
        prompts=episode.prompts[:steps],
        actions=episode.actions[:steps],
        screens=episode.screens[:steps],
        ending=ending,
        cause="",
        verdict=verdict.record(),
    )


def _load(path: pathlib.Path) -> tuple[Episode, list[Request]]:
    with np.load(path, allow_pickle=False) as stored:
        meta: dict[str, Any] = json.loads(stored["meta"].tobytes())
        trajectory = Trajectory(*(stored[name] for name in Trajectory._fields))
        images = [stored[f"image_{i}"] for i in range(len(meta["asked"]))]
    fields = meta["episode"]
    fields |= {name: tuple(fields[name]) for name in ("prompts", "actions")}
    fields["ending"] = Ending(fields["ending"])
    task = meta["task"]
    task["checks"] = tuple(Check(**check) for check in task["checks"])
    task = Task(**task | {name: tuple(task[name]) for name in ("setup", "values")})
    requests = [
        Request(task, _no_phone, image, tuple(asked))
        for image, asked in zip(images, meta["asked"], strict=True)
    ]
    return Episode(trajectory=trajectory, **fields), requests


def _no_phone(command: str) -> tuple[str, str, int]:
    """The phone shows something else by now: a check of its state finds nothing."""
    del command
    return "", "", 1
