"""The record of a run's numbers: one JSON object a line."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Self


class MetricsWriter:
    """Appends rows of numbers, named `area/what_unit` (docs/metrics.md), to a JSON-lines file."""

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, step: int, wall_s: float, values: Mapping[str, float | int | str]) -> None:
        """Writes one row; a number that is not finite is written as null, which JSON has."""
        row: dict[str, float | int | str | None] = {"step": step, "wall_s": round(wall_s, 3)}
        for name, value in values.items():
            if isinstance(value, float):
                row[name] = float(f"{value:.6g}") if math.isfinite(value) else None
            else:
                row[name] = value
        self._file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
