"""What a learner says of itself: to dashboards, and in the record of its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learner.config import LearnerConfig
from learner.memory import Memory
from learner.progress import Progress


def status(
    progress: Progress, config: LearnerConfig, memory: Memory, elapsed_s: float
) -> dict[str, Any]:
    """Returns what dashboards show."""
    return {
        "phase": progress.phase,
        "updates": progress.updates,
        "demonstrations": progress.demonstrations,
        "target_demonstrations": config.warm_start.demonstrations,
        "episodes": progress.episodes,
        "target_episodes": config.reinforce.episodes,
        "version": progress.version,
        "replay_episodes": len(memory.replay),
        "elapsed_s": elapsed_s,
        **memory.monitor.status(progress.version),
    }


def metrics(
    progress: Progress, memory: Memory, scalars: Mapping[str, Any], wire: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the numbers of docs/metrics.md.

    Args:
      progress: Where the run is.
      memory: What is in replay, and the newest episodes.
      scalars: Of the last updates, by name.
      wire: Counters of the data socket.
    """
    replay = memory.replay
    return {
        "run/phase": progress.phase,
        "run/version": progress.version,
        "actors/episodes": progress.episodes,
        "replay/episodes": len(replay),
        "replay/uses_a_step": replay.sampled_steps / max(replay.inserted_steps, 1),
        "replay/late_updates": replay.late_updates,
        "replay/expired": replay.expired,
        **memory.monitor.metrics(progress.version),
        **{name: float(value) for name, value in scalars.items()},
        **{f"wire/{name}": count for name, count in wire.items()},
    }
