"""The model next to PyTorch's, one JSON line each: python benchmarks/model.py [part ...]

Parts: t5 (decode_b1, decode_b8, train_step), grammar (grammar_decode), vision and memory. The first
and the third need torch and transformers, which `make parity` installs.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

PARTS = ("t5", "grammar", "vision", "memory")


def main() -> int:
    chosen = sys.argv[1:] or PARTS
    if unknown := sorted(set(chosen) - set(PARTS)):
        print(f"model: no part {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    for part in chosen:
        try:
            module = importlib.import_module(f"benchmarks.model_parts.{part}")
        except ModuleNotFoundError as error:
            print(f"model: {part} needs {error.name}; `make parity` installs it", file=sys.stderr)
            return 2
        for row in module.run():
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
