"""Where a run is, and which life of the learner this is."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import secrets
from typing import Any, NamedTuple

from common import files
from common.errors import ConfigError


@dataclasses.dataclass
class Progress:
    """Where a run is; saved with every checkpoint."""

    phase: str = "warm start"  # then "offline" if that is asked for, "reinforce", "done"
    lineage: int = 0
    version: int = 0  # of the published parameters
    updates: int = 0
    demonstrations: int = 0
    offline_updates: int = 0
    episodes: int = 0  # of the policy, in the phase "reinforce"
    wall_s: float = 0.0
    warm_start_step: int | None = None  # the checkpoint at the end of the warm start
    warm_start_wall_s: float = 0.0
    position: int = 0  # in the journal: the record that is read next
    critic_updates: int = 0
    round_began: int = 0  # of a synchronous round: how many episodes there were then


class Life(NamedTuple):
    """One start of a run's learner."""

    run: str  # the folder's name, and what tells it from another run in a folder of that name
    lineage: int  # no two lives of a run have the same, so that versions never repeat


def begin_life(workdir: pathlib.Path, lineage: int = 0) -> Life:
    """Counts the lives of a run in `run.json`, before anything of the new one can be seen.

    Args:
      workdir: Of the run.
      lineage: The new one's is above it, too.

    Raises:
      ConfigError: The file is damaged or can't be written.
    """
    path = workdir / "run.json"
    try:
        if path.exists():
            before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        else:
            before = {
                "run": f"{workdir.absolute().name[:200]}-{secrets.token_hex(4)}",
                "lineage": 0,
            }
        life = Life(str(before["run"]), max(int(before["lineage"]), lineage) + 1)
        files.write_durably(path, json.dumps(life._asdict()).encode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no usable record of a run: {error!r}.") from error
    return life
