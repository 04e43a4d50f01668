"""What a finished run reports: summary.json for programs, summary.md for people."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

CHECKPOINTS = {"warm_start": "warm start", "final": "final"}
MODES = ("sampled", "greedy")
FIELDS = ("success", "n", "low", "high")
HEADER = ("checkpoint", "actions", "success", "95 % interval (Wilson)", "episodes")


def evaluation(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the success of both modes from the file that launch/evaluate.py writes."""
    record = json.loads(path.read_text())
    return {mode: {field: record[mode][field] for field in FIELDS} for mode in MODES}


def rows(summary: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields the table of a summary, HEADER's columns, without the header."""
    for key, checkpoint in CHECKPOINTS.items():
        for mode in MODES if key in summary else ():
            score = summary[key][mode]
            interval = f"{100 * score['low']:.1f} to {100 * score['high']:.1f} %"
            share = "-" if score["success"] is None else f"{100 * score['success']:.1f} %"
            yield (checkpoint, mode, share, interval, f"{score['n']}")


def gain_points(summary: dict[str, Any]) -> float | None:
    """Returns by how much the online phase raised sampled success, in points."""
    if not all(key in summary for key in CHECKPOINTS):
        return None
    before, after = (summary[key]["sampled"]["success"] for key in CHECKPOINTS)
    return None if before is None or after is None else 100 * (after - before)


def markdown(summary: dict[str, Any]) -> str:
    """Returns a summary for people to read."""
    table = [HEADER, ("---",) * len(HEADER), *rows(summary)]
    gain = gain_points(summary)
    return "\n".join(
        [
            "# Success on held-out instructions",
            "",
            *("| " + " | ".join(row) + " |" for row in table),
            "",
            "The intervals are Wilson's. "
            + (
                ""
                if gain is None
                else f"Online learning changed sampled success by {gain:+.1f} points."
            ),
            "",
            f"- Seed {summary['seed']}, {summary['actors']} actors",
            f"- {summary['episodes']} episodes of the policy, {summary['updates']} updates",
            f"- {summary['wall_s'] / 60:.1f} minutes in all",
            "",
        ]
    )


def write(summary: dict[str, Any], workdir: pathlib.Path) -> None:
    """Writes summary.json and summary.md."""
    (workdir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    (workdir / "summary.md").write_text(markdown(summary))
