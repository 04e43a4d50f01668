"""What can be done with folders of recorded episodes, beside learning from them."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from common.errors import ConfigError
from learner.dataset import Dataset, Recorded, Writer, image_path


def statistics(dataset: Dataset) -> dict[str, Any]:
    """Returns counts, and success by source and by family, as JSON can hold them."""
    success: dict[str, dict[str, list[bool]]] = {"source": {}, "family": {}}
    endings: collections.Counter[str] = collections.Counter()
    tasks, screens = set[str](), set[str]()
    episodes = steps = invalid = 0
    for episode, images in dataset:
        episodes, steps = episodes + 1, steps + len(episode)
        invalid += int(episode.trajectory.invalid.sum())
        endings[episode.ending] += 1
        tasks.add(episode.task_id)
        screens |= set(images)
        for name, groups in success.items():
            groups.setdefault(getattr(episode, name), []).append(episode.success)
    numbers = {
        "episodes": episodes,
        "steps": steps,
        "steps_mean": steps / max(episodes, 1),
        "invalid_share": invalid / max(steps, 1),
        "tasks": len(tasks),
        "screens": len(screens),
        "bytes": sum(path.stat().st_size for path in dataset.segments()),
        "endings": {str(ending): count for ending, count in sorted(endings.items())},
    }
    for name, groups in success.items():
        numbers[f"by_{name}"] = {
            group: {"success": sum(done) / len(done), "n": len(done)}
            for group, done in sorted(groups.items())
        }
    return numbers


def merge(folders: Sequence[pathlib.Path], output: pathlib.Path) -> tuple[int, int]:
    """Copies the episodes of folders into another, each once, with its screens.

    Returns:
      How many were written, and how many were left out because they were there already.

    Raises:
      ConfigError: The folders are not of one model, or one is damaged or is the output itself.
    """
    if not folders:
        raise ConfigError("Name the folders that are to be merged.")
    datasets = [Dataset(folder) for folder in folders]
    if output.resolve() in [folder.resolve() for folder in folders]:
        raise ConfigError(f"{output} is among what is to be merged into it.")
    first, doubles = datasets[0], 0
    for dataset in datasets:
        dataset.require(first.spec, first.tokenizer)
    with Writer(output, first.spec, first.tokenizer) as writer:
        seen = {_identity(recorded) for recorded in Dataset(output)}
        for dataset in datasets:
            for recorded in dataset:
                if _identity(recorded) in seen:
                    doubles += 1
                    continue
                seen.add(_identity(recorded))
                screens = dataset.screens(recorded)
                writer.write(dataclasses.replace(recorded.episode, screens=screens))
        return writer.count, doubles


def plain(recorded: Recorded) -> dict[str, Any]:
    """Returns an episode without its arrays of ids and features, for JSON."""
    episode, path = recorded.episode, recorded.episode.trajectory
    named = {
        field.name: getattr(episode, field.name)
        for field in dataclasses.fields(episode)
        if field.name not in ("trajectory", "prompts", "actions", "screens")
    }
    images: list[str | None] = [
        str(image_path(pathlib.Path(), name)) for name in recorded.images
    ] or [None] * len(episode)
    steps = zip(
        episode.prompts,
        episode.actions,
        path.reward.tolist(),
        path.discount.tolist(),
        path.behaviour_log_probs.sum(-1).tolist(),
        path.invalid.tolist(),
        path.repeats.tolist(),
        path.version.tolist(),
        images,
        strict=True,
    )
    names = ("prompt", "action", "reward", "discount", "log_prob", "invalid", "repeats", "version")
    return named | {"steps": [dict(zip((*names, "screen"), step, strict=True)) for step in steps]}


def _identity(recorded: Recorded) -> tuple[str, str, int]:
    return recorded.episode.actor, recorded.episode.boot, recorded.episode.seq
