"""Compares two reports of launch/evaluate.py: `python launch/compare.py A.json B.json`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import collections
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro

from common.errors import ConfigError

_COUNTED = ("success", "gave_up", "horizon")
_IGNORED = ("output", "adb_port", "emulator", "phones")


@dataclasses.dataclass(frozen=True)
class Args:
    """Pairs the episodes of two evaluations and says by how much they differ."""

    a: Annotated[pathlib.Path, tyro.conf.Positional]
    """Report of one evaluation ..."""
    b: Annotated[pathlib.Path, tyro.conf.Positional]
    """... and of the other."""
    mode: str = ""
    """Way of acting to compare, such as greedy; by default the first that each report has."""
    seed: int = 0
    """Of the bootstrap."""
    json: bool = False
    """Print JSON."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    try:
        found = compare(_read(args.a), _read(args.b), args.mode, args.seed)
    except ConfigError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if args.json else said(found))
    return 0


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if not all(report[mode]["episodes"] is not None for mode in report["modes"]):
            raise ValueError("it has no episodes")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no report of launch/evaluate.py: {error!r}.") from error
    return {**report, "path": str(path)}


def compare(a: Mapping[str, Any], b: Mapping[str, Any], mode: str, seed: int) -> dict[str, Any]:
    """Returns the paired difference, b minus a.

    Raises:
      ConfigError: They have no episode in common, or not this mode.
    """
    from launch import scores

    modes = [_mode(report, mode) for report in (a, b)]
    done = [_outcomes(report, name) for report, name in zip((a, b), modes, strict=True)]
    shared = sorted(set(done[0]) & set(done[1]))
    if not shared:
        raise ConfigError(
            f"{a['path']} and {b['path']} have no counted episode in common: evaluate both with "
            "the same --tasks, --episodes and --seed."
        )
    differences: dict[str, list[float]] = collections.defaultdict(list)
    table: collections.Counter[tuple[bool, bool]] = collections.Counter()
    for key in shared:
        pair = done[0][key], done[1][key]
        table[pair] += 1
        differences[key[0]].append(float(pair[1]) - float(pair[0]))
    low, high = scores.cluster_bootstrap(list(differences.values()), seed)
    only_a, only_b = table[True, False], table[False, True]
    return {
        "a": {"path": a["path"], "mode": modes[0], "success": _share(done[0], shared)},
        "b": {"path": b["path"], "mode": modes[1], "success": _share(done[1], shared)},
        "same_panel": a["panel_hash"] == b["panel_hash"],
        "pairs": len(shared),
        "only_in_one": len(set(done[0]) ^ set(done[1])),
        "difference": (only_b - only_a) / len(shared),
        "low": low,
        "high": high,
        "only_a": only_a,
        "only_b": only_b,
        "both": table[True, True],
        "neither": table[False, False],
        "mcnemar_p": scores.mcnemar(only_a, only_b),
        "config": _config(a["config"], b["config"]),
    }


def _mode(report: Mapping[str, Any], mode: str) -> str:
    name = mode or report["modes"][0]
    if name not in report["modes"]:
        raise ConfigError(
            f"{report['path']} has no {name!r} episodes, but {', '.join(report['modes'])}."
        )
    return name


def _outcomes(report: Mapping[str, Any], mode: str) -> dict[tuple[str, int, int], bool]:
    """Success by (task, layout, repeat), of what counts."""
    return {
        (row["task_id"], row["seed"], row["repeat"]): row["outcome"] == "success"
        for row in report[mode]["episodes"]
        if row["outcome"] in _COUNTED
    }


def _share(outcomes: Mapping[Any, bool], shared: Sequence[Any]) -> float:
    return sum(outcomes[key] for key in shared) / len(shared)


def _config(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What differs between two configurations, where it may matter."""
    names = sorted((a.keys() | b.keys()) - set(_IGNORED))
    return {name: [a.get(name), b.get(name)] for name in names if a.get(name) != b.get(name)}


def said(found: Mapping[str, Any]) -> str:
    """Returns a comparison for people to read."""
    a, b = found["a"], found["b"]
    lines = [
        f"A  {a['path']} ({a['mode']}): {100 * a['success']:.1f} %",
        f"B  {b['path']} ({b['mode']}): {100 * b['success']:.1f} %",
        f"B - A: {100 * found['difference']:+.1f} points, bootstrap over tasks 95 % "
        f"{100 * found['low']:+.1f} to {100 * found['high']:+.1f}, over {found['pairs']} pairs",
        f"Both {found['both']}, only A {found['only_a']}, only B {found['only_b']}, neither "
        f"{found['neither']}; McNemar's exact p = {found['mcnemar_p']:.3g}",
    ]
    if found["only_in_one"]:
        lines.append(f"{found['only_in_one']} episodes count in one of them alone; left out here.")
    if not found["same_panel"]:
        lines.append("The panels differ: only what is in both is compared.")
    lines += [f"{name}: {x!r} and {y!r}" for name, (x, y) in found["config"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
