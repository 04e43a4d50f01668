"""What a person can look at afterwards: every episode as a line, some with their screens.

And, where that is asked for, what a learner can learn from again: see `learner.dataset`.
"""

from __future__ import annotations

import json
import pathlib

from common.types import Episode
from learner.dataset import Writer


class Archive:
    """Writes `episodes.jsonl`, and a folder of screenshots for episodes that carry them.

    Owns `recorder`, if there is one, and gives it every episode.
    """

    def __init__(self, folder: pathlib.Path, recorder: Writer | None = None):
        self._folder, self._recorder = folder, recorder
        folder.mkdir(parents=True, exist_ok=True)
        self._index = (folder / "episodes.jsonl").open("a", encoding="utf-8", buffering=1)

    def write(self, episode: Episode) -> None:
        if self._recorder is not None:
            self._recorder.write(episode)
        path = episode.trajectory
        name = f"{episode.actor}-{episode.boot}-{episode.seq:06d}"
        record = {
            "episode": name,
            "source": episode.source,
            "task": episode.task_id,
            "template": episode.template,
            "family": episode.family,
            "goal": episode.goal,
            "seed": episode.seed,
            "ending": str(episode.ending),
            "cause": episode.cause,
            "verdict": episode.verdict,
            "lineage": episode.lineage,
            "version": int(path.version[-1]),
            "temperature": episode.temperature,
            "duration_s": round(episode.duration_s, 3),
            "steps": [
                {"action": action, "invalid": bool(invalid), "repeats": int(repeats)}
                for action, invalid, repeats in zip(
                    episode.actions, path.invalid, path.repeats, strict=True
                )
            ],
        }
        self._index.write(json.dumps(record) + "\n")
        if episode.screens:
            folder = self._folder / name
            folder.mkdir(exist_ok=True)
            for number, screen in enumerate(episode.screens):
                (folder / f"{number:02d}.png").write_bytes(screen)
            record["prompts"] = list(episode.prompts)
            (folder / "episode.json").write_text(json.dumps(record, indent=1), encoding="utf-8")

    def close(self) -> None:
        self._index.close()
        if self._recorder is not None:
            self._recorder.close()
