"""Compares algorithms on the simulated phone: python benchmarks/learning.py --presets distrl,digirl

For each seed all start from one policy, warm-started on demonstrations, which no run replays; so
they differ in what they learn online and in nothing else: as many actors, the same minutes, and the
same bound on updates an episode. One JSON line a run, then one a preset; a run that is there
already is not repeated, so an interrupted comparison goes on.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import tyro

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
POINTS = 12  # of a learning curve


@dataclasses.dataclass(frozen=True)
class Args:
    """Trains every preset from every seed's warm start, one after the other."""

    presets: str = "distrl,digirl,filtered-bc"
    """Names of learner/presets.py, with commas."""
    seeds: int = 3
    """Seeds 0, 1, ..."""
    first_seed: int = 0
    """Or from another one on."""
    minutes: float = 5.0
    """Of online learning, a run."""
    flags: str = ""
    """Further flags of launch/learner.py for every run, as in "--no-dper"."""
    workdir: pathlib.Path = pathlib.Path("runs/learning")
    """Folder of the runs."""


def main(argv: Sequence[str] | None = None) -> None:
    args = tyro.cli(Args, args=argv)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    finals: dict[str, list[float]] = {}
    for seed in seeds:
        start = args.workdir.absolute() / f"start-{seed}"
        train(start, seed, 8.5, "--episodes 0")
        for preset in args.presets.split(","):
            folder = args.workdir.absolute() / f"{preset}-{seed}"
            flags = f"--init {start / 'checkpoints'} --demonstrations 0 --algorithm {preset}"
            summary = train(folder, seed, args.minutes, f"{flags} {args.flags}")
            row = line(folder, preset, summary)
            print(json.dumps(row), flush=True)
            finals.setdefault(preset, []).append(row["final"])
    for preset, values in finals.items():
        spread = statistics.stdev(values) if len(values) > 1 else None
        row = {
            "name": "learning_mean",
            "preset": preset,
            "runs": len(values),
            "final": round(statistics.mean(values), 3),
            "sd": None if spread is None else round(spread, 3),
        }
        print(json.dumps(row), flush=True)


def train(folder: pathlib.Path, seed: int, minutes: float, flags: str) -> dict[str, Any]:
    """Runs launch/local.py, unless it did already; returns its summary."""
    if not (folder / "summary.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, str(ROOT / "launch" / "local.py"), "--seed", str(seed),
            "--workdir", str(folder), "--minutes", str(minutes), f"--learner-flags={flags}",
        ]  # fmt: skip
        with folder.with_suffix(".log").open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def line(folder: pathlib.Path, preset: str, summary: dict[str, Any]) -> dict[str, Any]:
    """Returns what a run achieved, on held-out tasks and, along the way, on training tasks."""
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    online = [row for row in rows if row["run/phase"] != "warm start" and row["actors/episodes"]]
    chosen = online[:: max(1, len(online) // POINTS)]
    final = summary["final"]["sampled"]
    return {
        "name": "learning",
        "preset": preset,
        "seed": summary["seed"],
        "start": round(summary["warm_start"]["sampled"]["success"], 3),
        "final": round(final["success"], 3),
        "low": round(final["low"], 3),
        "high": round(final["high"], 3),
        "greedy": round(summary["final"]["greedy"]["success"], 3),
        "episodes": summary["episodes"],
        "updates": summary["updates"],
        "uses_a_step": round(online[-1]["replay/uses_a_step"], 2) if online else None,
        "wall_s": summary["wall_s"],
        "curve": [
            [row["actors/episodes"], round(row["wall_s"]), round(row["actors/success"], 3)]
            for row in chosen
        ],
    }


if __name__ == "__main__":
    main()
