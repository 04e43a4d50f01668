"""What a run looks like while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Self

import rich.console
import rich.live
import rich.table
import rich.text

PLAIN_EVERY_S = 5.0
PLAIN_WIDTH = 200


@dataclasses.dataclass(frozen=True)
class View:
    """One moment of a run.

    Attributes:
      phase: What the run is doing, in words.
      elapsed_s: Since it started.
      left_s: At most, before the evaluation; None if that is not known.
      learner: The learner's own status; empty if it does not matter or does not answer.
      processes: State and details of each process, by name. A colon ends what is important.
    """

    phase: str
    elapsed_s: float
    left_s: float | None
    learner: Mapping[str, Any]
    processes: Mapping[str, tuple[str, str]]


class Display:
    """Shows views; owns the terminal's live area if there is one."""

    def __init__(self, console: rich.console.Console):
        self._console = console
        self._live = rich.live.Live(console=console, auto_refresh=False, transient=True)
        self._printed = (-PLAIN_EVERY_S, "")  # when the last plain line was, and its phase

    def show(self, view: View) -> None:
        """Shows a moment; where there is no terminal, every 5 s and when the phase changes."""
        if self._console.is_terminal:
            self._live.update(table(view), refresh=True)
            return
        now, (printed_at, phase) = time.monotonic(), self._printed
        if view.phase != phase or now - printed_at >= PLAIN_EVERY_S:
            self._printed = (now, view.phase)
            print(line(view), flush=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()


def table(view: View) -> rich.console.Group:
    """Returns a view for a terminal: what is known, and a row for each process."""
    grid = rich.table.Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for name, (state, details) in view.processes.items():
        grid.add_row(name, state, rich.text.Text(details))
    return rich.console.Group(rich.text.Text(" | ".join(facts(view)), "bold"), grid)


def line(view: View) -> str:
    """Returns a view as one line; processes that just run are left out."""
    processes = [
        f"{name} {state} {details.partition(':')[0]}".rstrip()
        for name, (state, details) in view.processes.items()
        if details or state != "running"
    ]
    text = " | ".join([*facts(view), *([", ".join(processes)] if processes else [])])
    return text if len(text) <= PLAIN_WIDTH else text[: PLAIN_WIDTH - 3] + "..."


def facts(view: View) -> list[str]:
    """Returns what is known at the moment, the most important first."""
    known = [clock(view.elapsed_s), view.phase]
    if view.left_s is not None:
        known.append(f"at most {clock(view.left_s)} left")
    if not view.learner:
        return known
    status = view.learner
    episodes = f"episodes {status['episodes']}/{status['target_episodes']}"
    if view.phase == "warm start":
        episodes = f"demonstrations {status['demonstrations']}/{status['target_demonstrations']}"
    return [
        *known,
        f"step {status['updates']}",
        f"{episodes}, {status['episodes_per_s']:.1f}/s",
        f"success {success(status)}",
        f"version {status['version']}, lag {status['lag_versions']:.1f}",
    ]


def success(status: Mapping[str, Any]) -> str:
    """Returns the mean success of the task families, in words."""
    if not status["measured"]:
        return "not measured yet"
    return f"{status['success']:.2f} (last {status['measured']})"


def clock(seconds: float) -> str:
    """Returns a duration as minutes:seconds."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    return f"{minutes}:{rest:02}"
