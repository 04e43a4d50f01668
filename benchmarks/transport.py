"""Sockets between learner and actors, one JSON line each: python benchmarks/transport.py [part ...]

Parts: episodes (machine, episodes), parameters (params_small, params_host, params_learner),
storm (connect_storm) and hostile (memory by case, fuzz).
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

PARTS = ("episodes", "parameters", "storm", "hostile")


def main() -> int:
    chosen = sys.argv[1:] or PARTS
    if unknown := sorted(set(chosen) - set(PARTS)):
        print(
            f"transport: no part {', '.join(unknown)}; there are {', '.join(PARTS)}",
            file=sys.stderr,
        )
        return 2
    for part in chosen:
        for row in importlib.import_module(f"benchmarks.transport_parts.{part}").run():
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
