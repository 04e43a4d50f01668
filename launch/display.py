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


@dataclasses.dataclass(frozen=True)
class View:
    """One moment of a run.

    Attributes:
      phase: What the run is doing, in words.
      elapsed_s: Since it started.
      left_s: At most, before the evaluation; None if that is not known.
      learner: The learner's own status; empty as long as it does not answer.
      processes: State and details of each process, by name.
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


def table(view: View) -> rich.table.Table:
    """Returns a view as a table for a terminal."""
    grid = rich.table.Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for name, value in facts(view):
        grid.add_row(name, value)
    for name, words in view.processes.items():
        grid.add_row(
            name, rich.text.Text(" ".join(words), "dim", overflow="ellipsis", no_wrap=True)
        )
    return grid


def line(view: View) -> str:
    """Returns a view as one line; details are left out."""
    processes = ", ".join(f"{name} {state}" for name, (state, _) in view.processes.items())
    return " | ".join([*(f"{name} {value}" for name, value in facts(view)), processes])


def facts(view: View) -> list[tuple[str, str]]:
    """Returns what is known at the moment as pairs of name and value."""
    status = view.learner
    pairs = [("time", clock(view.elapsed_s)), ("phase", view.phase)]
    if status:
        demonstrations, episodes = status["demonstrations"], status["episodes"]
        pairs += [
            ("step", f"{status['updates']}"),
            ("demonstrations", f"{demonstrations} of {status['target_demonstrations']}"),
            ("episodes", f"{episodes} of {status['target_episodes']}"),
            ("episodes/s", f"{status['episodes_per_s']:.1f}"),
            ("success", success(status)),
            ("version", f"{status['version']}, actors {status['lag_versions']:.1f} behind"),
        ]
    if view.left_s is not None:
        pairs.append(("left", f"at most {clock(view.left_s)}"))
    return pairs


def success(status: Mapping[str, Any]) -> str:
    """Returns how many of the newest episodes succeeded, in words."""
    if not status["measured"]:
        return "not measured yet"
    return f"{status['success']:.2f} of the last {status['measured']}"


def clock(seconds: float) -> str:
    """Returns a duration as minutes:seconds."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    return f"{minutes}:{rest:02}"
