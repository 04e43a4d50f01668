"""Keys for learner and actors: `python launch/keys.py keys actor-1 actor-2`.

The learner takes `--keys keys/learner`. Copy keys/actor-1 to that actor's host, where it takes
`--keys` with the copy. Run it again with more names to allow more actors: a running learner
notices. Delete keys/learner/allowed/actor-1.key to shut one out.
"""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from common import keys
from common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Args:
    """Makes keys, so that learner and actors know each other and what they say is encrypted."""

    folder: Annotated[pathlib.Path, tyro.conf.Positional]
    """Where: gets learner/ and a folder for each actor."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Actors; those of one host may share a key, named after the host."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    try:
        keys.create(args.folder, list(args.names))
    except ConfigError as error:
        print(f"keys: {error}", file=sys.stderr)
        return 2
    print(f"Learner: --keys {args.folder / 'learner'}")
    for name in args.names:
        print(f"Actor {name}: copy {args.folder / name} to its host; --keys with the copy's path")
    return 0


if __name__ == "__main__":
    sys.exit(main())
