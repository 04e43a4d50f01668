"""How far a judge can be trusted: `python launch/audit.py VERDICTS --judge A --reference B`."""

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
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from common.errors import ConfigError

if TYPE_CHECKING:
    from actors.evaluators.records import Record

WORDS = ("success", "failure", "unknown")
DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class Args:
    """Holds a judge's verdicts against the task's own checks, or against a person's.

    Make the verdicts with `launch/evaluate.py --audit-judge A --judge-records VERDICTS`.
    """

    verdicts: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
    """Files of --judge-records that hold the verdicts of both."""
    judge: str
    """The judge under test, as it was named: gemini, say."""
    reference: str = "state"
    """Who is right: state or human."""
    seed: int = 0
    """Of the bootstrap."""
    json: bool = False
    """Print JSON."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    try:
        found = audit(_records(args.verdicts), args.judge, args.reference, args.seed)
    except ConfigError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if args.json else said(found))
    return 0


def _records(paths: Iterable[pathlib.Path]) -> list[Record]:
    from actors.evaluators.records import read_records

    return [record for path in paths for record in read_records(path)]


def audit(records: Iterable[Record], judge: str, reference: str, seed: int = 0) -> dict[str, Any]:
    """Returns how a judge agrees with another one about the same questions.

    A question that comes again counts once, with the newest answer. A missing verdict is in the
    table, but in no rate.

    Raises:
      ConfigError: They have no question in common.
    """
    newest: dict[str, dict[str, Record]] = {judge: {}, reference: {}}
    names = set()
    for record in records:
        names.add(record.judge)
        if record.judge in newest:
            newest[record.judge][record.request] = record
    shared = sorted(newest[judge].keys() & newest[reference].keys())
    if not shared or judge == reference:
        raise ConfigError(
            f"No question was answered by both {judge!r} and {reference!r}; the files have "
            f"verdicts of {', '.join(sorted(names)) or 'nobody'}."
        )
    pairs = [
        (str(newest[reference][key].verdict.status), str(newest[judge][key].verdict.status))
        for key in shared
    ]
    tasks = [newest[reference][key].task_id for key in shared]
    return {"judge": judge, "reference": reference} | agreement(pairs, tasks, seed)


def agreement(
    pairs: Sequence[tuple[str, str]], tasks: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """Returns the agreement of a judge.

    Args:
      pairs: (what is right, what the judge says) of each question.
      tasks: Whose question each is: those of one task are drawn together for kappa's interval.
      seed: Of the draws.
    """
    import numpy as np

    from launch import scores

    table = collections.Counter(pairs)
    known = [pair for pair in pairs if "unknown" not in pair]
    both, missed = table["success", "success"], table["success", "failure"]
    claimed = table["failure", "success"]
    clusters: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for pair, task in zip(pairs, tasks, strict=True):
        if "unknown" not in pair:
            clusters[task].append(pair)
    groups, rng = list(clusters.values()), np.random.default_rng(seed)
    kappas = []
    for _ in range(DRAWS if len(groups) > 1 else 0):
        drawn = rng.integers(len(groups), size=len(groups))
        kappas.append(scores.cohen_kappa(collections.Counter(p for i in drawn for p in groups[i])))
    finite = [kappa for kappa in kappas if kappa == kappa]
    unknown = sum(word == "unknown" for _, word in pairs)
    kappa = scores.cohen_kappa(collections.Counter(known))
    return {
        "questions": len(pairs),
        "confusion": {
            right: {word: table[right, word] for word in WORDS if table[right, word]}
            for right in WORDS
            if any(table[right, word] for word in WORDS)
        },
        "unknown": _rate(unknown, len(pairs)),
        "agreement": _rate(sum(right == word for right, word in known), len(known)),
        "kappa": None if kappa != kappa else kappa,
        "kappa_interval": np.percentile(finite, (2.5, 97.5)).tolist() if finite else None,
        "precision": _rate(both, both + claimed),
        "recall": _rate(both, both + missed),
    }


def _rate(count: int, n: int) -> dict[str, Any]:
    from launch import scores

    low, high = scores.wilson(count, n)
    return {"share": count / n if n else None, "n": n, "low": low, "high": high}


def said(found: Mapping[str, Any]) -> str:
    """Returns an audit for people to read."""

    def rate(name: str) -> str:
        value = found[name]
        if value["share"] is None:
            return f"{name}: no case"
        interval = f"{100 * value['low']:.1f} to {100 * value['high']:.1f}"
        return f"{name}: {100 * value['share']:.1f} % ({interval}) of {value['n']}"

    lines = [
        f"{found['judge']} against {found['reference']}, {found['questions']} questions",
        "",
        f"| {found['reference']} says | " + " | ".join(f"judge: {word}" for word in WORDS) + " |",
        "|---|" + "---|" * len(WORDS),
    ]
    for right, row in found["confusion"].items():
        lines.append(f"| {right} | " + " | ".join(str(row.get(word, 0)) for word in WORDS) + " |")
    kappa, interval = found["kappa"], found["kappa_interval"]
    shown = "undefined" if kappa is None else f"{kappa:.3f}"
    if interval:
        shown += f" ({interval[0]:.3f} to {interval[1]:.3f}, bootstrap over tasks)"
    lines += ["", rate("agreement"), f"kappa: {shown}", rate("precision"), rate("recall")]
    return "\n".join([*lines, rate("unknown")])


if __name__ == "__main__":
    sys.exit(main())
