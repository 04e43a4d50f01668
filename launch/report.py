"""What an evaluation found, as plain data, Markdown and HTML."""

from __future__ import annotations

import collections
import dataclasses
import html
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from launch import scores

if TYPE_CHECKING:
    from actors.evaluate import Result

PASS_K = (1, 2, 4, 8)
_SHOWN = 30  # lines of a list
_STYLE = """body{font-family:system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;
text-align:left}.bar{background:#2a6;height:.8em;display:inline-block}.none{background:#ddd;height:
.8em;display:inline-block}code{background:#f3f3f3}small{color:#666}"""

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """Success over the episodes that count; the others are counted apart, by what they are.

    An episode counts if neither device nor judge failed and the task was not done at its start.
    """
    results = sorted(results, key=lambda result: (result.index, result.repeat))
    judged = [result for result in results if result.judged]
    successes = sum(result.success for result in judged)
    steps = sum(result.steps for result in judged)
    low, high = scores.wilson(successes, len(judged))
    outcomes = collections.Counter(result.outcome for result in results)
    tasks = _grouped(judged, "task_id")
    clusters = [[float(result.success) for result in group] for group in tasks.values()]
    entries = collections.defaultdict(list)
    for result in judged:
        entries[result.index].append(result.success)
    causes = collections.Counter(result.cause[:120] for result in results if result.cause)
    answered = len(judged) + outcomes["unknown"]
    return {
        "success": successes / len(judged) if judged else None,
        "n": len(judged),
        "low": low,
        "high": high,
        "bootstrap": _finite(scores.cluster_bootstrap(clusters)),
        "truncated": outcomes["truncated"],
        "unknown": outcomes["unknown"],
        "unknown_share": outcomes["unknown"] / max(answered, 1),
        "done_at_start": outcomes["done_at_start"],
        "gave_up": outcomes["gave_up"],
        "horizon": outcomes["horizon"],
        "causes": dict(causes.most_common(_SHOWN)),
        "steps_mean": steps / max(len(judged), 1),
        "invalid_share": sum(result.invalid for result in judged) / max(steps, 1),
        "unparsable_share": sum(result.unparsable for result in judged) / max(steps, 1),
        "pass_at_k": _passes(entries, scores.pass_at_k),
        "pass_all_k": _passes(entries, scores.pass_all_k),
        "flaky": sorted(
            {result.task_id for result in judged if len(set(entries[result.index])) > 1}
        ),
        "families": {
            family: {"success": sum(r.success for r in group) / len(group), "n": len(group)}
            for family, group in sorted(_grouped(judged, "family").items())
        },
        "tasks": [_task(group) for group in _grouped(results, "task_id").values()],
        "episodes": [dataclasses.asdict(result) for result in results],
    }


def _grouped(results: Iterable[Result], field: str) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(getattr(result, field), []).append(result)
    return groups


def _task(group: Sequence[Result]) -> dict[str, Any]:
    judged = [result for result in group if result.judged]
    return {
        "task": group[0].task_id,
        "goal": group[0].goal,
        "family": group[0].family,
        "successes": sum(result.success for result in judged),
        "n": len(judged),
        "not_counted": len(group) - len(judged),
        "steps_mean": sum(result.steps for result in judged) / max(len(judged), 1),
    }


def _passes(entries: Mapping[int, Sequence[bool]], measure: Any) -> dict[str, float]:
    """Means over the entries that were judged at least k times."""
    found = {}
    for k in PASS_K:
        values = [measure(sum(done), len(done), k) for done in entries.values() if len(done) >= k]
        if values:
            found[str(k)] = sum(values) / len(values)
    return found


def _finite(interval: tuple[float, float]) -> list[float] | None:
    return None if interval[0] != interval[0] else list(interval)


def write(report: Mapping[str, Any], path: pathlib.Path) -> None:
    """Writes JSON to the path, and Markdown and HTML beside it."""
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(report), encoding="utf-8")
    path.with_suffix(".html").write_text(page(report), encoding="utf-8")


def _head(report: Mapping[str, Any]) -> list[str]:
    """Sentences about what was evaluated."""
    judge = report["judge"]
    said = [
        f"Agent: {report['agent']}" + (f", {report['checkpoint']}" if report["checkpoint"] else ""),
        f"Tasks: {report['tasks']}, {report['panel_size']} entries of {report['panel_tasks']} "
        f"tasks, panel {report['panel_hash']}, {report['repeats']} times each, "
        f"seed {report['seed']}",
        f"Judge: {judge['name']}, {judge['calls']} calls, {judge['tokens']} tokens, "
        f"{judge['usd']:.2f} USD",
        f"Devices: {', '.join(report['devices'])}; {report['wall_s']:.0f} s in all",
    ]
    if report["overlap"]:
        said.append(
            f"Also trained on: {len(report['overlap'])} goals, as in {report['overlap'][0]}"
        )
    preset, steps = report["protocol"], set(report["horizon"].values())
    if preset and steps != {preset["steps"]}:
        shown = ", ".join(map(str, sorted(steps)))
        said.append(f"Not as {report['preset']} has it: {shown} steps, not {preset['steps']}")
    if report["repeated"]:
        said.append(f"Goals of several tasks: {len(report['repeated'])}")
    return said + [f"Not repeatable: {sentence}" for sentence in report["not_repeatable"]]


def _overall(report: Mapping[str, Any]) -> Table:
    header = (
        "actions", "success", "Wilson 95 %", "bootstrap over tasks 95 %", "counted", "unknown",
        "truncated", "done at start", "steps", "invalid", "unparsable",
    )  # fmt: skip
    rows = []
    for mode in report["modes"]:
        found = report[mode]
        bootstrap = found["bootstrap"]
        rows.append(
            (
                mode,
                _percent(found["success"]),
                _interval(found["low"], found["high"]),
                _interval(*bootstrap) if bootstrap else "-",
                *(str(found[key]) for key in ("n", "unknown", "truncated", "done_at_start")),
                f"{found['steps_mean']:.1f}",
                _percent(found["invalid_share"]),
                _percent(found["unparsable_share"]),
            )
        )
    return header, rows


def _passed(report: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (mode, f"k = {k}", _percent(value), _percent(report[mode]["pass_all_k"][k]))
        for mode in report["modes"]
        for k, value in report[mode]["pass_at_k"].items()
        if k != "1"
    ]
    return ("actions", "tries", "pass@k: one succeeds", "pass^k: all succeed"), rows


def _families(report: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (mode, family, f"{found['success']:.2f}", str(found["n"]))
        for mode in report["modes"]
        for family, found in report[mode]["families"].items()
    ]
    return ("actions", "family", "success", "counted"), rows


def _tasks(report: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            mode,
            found["goal"],
            f"{found['successes']} of {found['n']}",
            str(found["not_counted"]),
            f"{found['steps_mean']:.1f}",
            "flaky" if found["task"] in report[mode]["flaky"] else "",
        )
        for mode in report["modes"]
        for found in report[mode]["tasks"]
    ]
    return ("actions", "task", "successes", "not counted", "steps", ""), rows


def _causes(report: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (mode, cause, str(count))
        for mode in report["modes"]
        for cause, count in report[mode]["causes"].items()
    ]
    return ("actions", "why an episode does not count", "times"), rows


_DEFINITION = (
    "Success is the share of the counted episodes in which the judge said, after some step, that "
    "the task is done. Episodes whose device failed, whose last screen the judge could not tell, "
    "or whose task was done at the start are not counted and stand apart."
)
_SECTIONS = {"": _overall, "By tries": _passed, "By family": _families, "Not counted": _causes}


def markdown(report: Mapping[str, Any]) -> str:
    """Returns a report for people to read."""
    lines = [f"# Evaluation of {report['agent']}", ""]
    lines += [f"- {sentence}" for sentence in _head(report)] + ["", _DEFINITION, ""]
    for title, table in (_SECTIONS | {"By task": _tasks}).items():
        header, rows = table(report)
        if rows:
            lines += [f"## {title}", ""] if title else []
            lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in (header,)]
            lines += ["|" + "---|" * len(header)]
            lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows] + [""]
    return "\n".join(lines)


def page(report: Mapping[str, Any]) -> str:
    """Returns a page that needs nothing beside it."""
    title = html.escape(f"Evaluation of {report['agent']}")
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style><h1>{title}</h1><ul>",
        *(f"<li>{html.escape(sentence)}</li>" for sentence in _head(report)),
        f"</ul><p>{_DEFINITION}</p>",
    ]
    for mode in report["modes"]:
        share = 100 * (report[mode]["success"] or 0.0)
        parts.append(
            f'<p>{html.escape(mode)} <span class="bar" style="width:{share / 4:.1f}em"></span>'
            f'<span class="none" style="width:{25 - share / 4:.1f}em"></span> '
            f"{_percent(report[mode]['success'])}</p>"
        )
    for title, table in (_SECTIONS | {"By task": _tasks}).items():
        header, rows = table(report)
        if rows:
            parts.append(f"<h2>{title}</h2>" if title else "")
            parts.append(_html_table(header, rows))
    return "\n".join(parts) + "</html>\n"


def _html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(header, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f} %"
