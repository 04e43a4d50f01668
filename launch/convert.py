"""Hugging Face folders in and out: `python launch/convert.py import FOLDER --output CHECKPOINT`."""

from __future__ import annotations

if __name__ == "__main__":
    import pathlib
    import sys

    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import json
import logging
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from common.errors import ConfigError

if TYPE_CHECKING:
    from common.models.text import Tokenizer

GRAMMAR = "grammar"


@dataclasses.dataclass(frozen=True)
class Import:
    """Makes a checkpoint of a folder with an Auto-UI or a plain T5.

    launch/evaluate.py and launch/predict.py take it, and launch/learner.py with --init. The folder
    holds config.json, model.safetensors (or its shards, or pytorch_model.bin if torch is installed)
    and tokenizer.json or spiece.model.
    """

    folder: tyro.conf.Positional[pathlib.Path]
    """The Hugging Face folder."""
    output: pathlib.Path
    """Where the checkpoint goes; a new or empty folder."""
    prompt_length: int = 512
    """Tokens of a prompt."""
    action_length: int = 128
    """Tokens of an action."""
    tokenizer: str | None = None
    """Another folder with a tokenizer, or `grammar` for our byte-level one, made for the actions'
    grammar; the model knows the tokens of neither."""
    seed: int = 0
    """Of the fusion with the screen's features, where the folder holds a plain T5."""


@dataclasses.dataclass(frozen=True)
class Export:
    """Writes a checkpoint's policy as a folder that DigiRL's and transformers' classes load."""

    checkpoint: tyro.conf.Positional[pathlib.Path]
    """A run's `checkpoints` folder (the newest is taken) or one step's folder in it."""
    output: pathlib.Path
    """A new or empty folder."""
    max_shard_gb: float = 5.0
    """Larger models go to several files of this size."""


@dataclasses.dataclass(frozen=True)
class Verify:
    """Holds a folder's model against what another implementation computed with it.

    Prints one line of JSON; the exit code is 1 if a logit or log-probability is off by over 1e-4 or
    a greedy token differs.
    """

    folder: tyro.conf.Positional[pathlib.Path]
    """The Hugging Face folder."""
    reference: pathlib.Path
    """An npz file with input_ids and attention_mask [B, S], image_features [B, C], labels [B, A],
    logits [B, A, V], label_logprobs [B, A] and greedy [B, 1 + T]; id 0 is padding."""


Command = (
    Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
)


def main(argv: Sequence[str] | None = None) -> int:
    command: Import | Export | Verify = tyro.cli(
        Command,
        args=argv,
        description=__doc__,
    )
    # Orbax warns of handlers that it finds by itself.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        if isinstance(command, Import):
            return _import(command)
        return _export(command) if isinstance(command, Export) else _verify(command)
    except ConfigError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2


def _import(args: Import) -> int:
    _make_empty(args.output)
    from common.models import pretrained
    from learner.checkpoint import save_policy
    from learner.config import LearnerConfig

    loaded = pretrained.load(args.folder, args.prompt_length, args.action_length, args.seed)
    tokenizer = _tokenizer(args, loaded.config.vocab_size)
    defaults = LearnerConfig()
    meta = {
        "model": loaded.config.to_dict(),
        "tokenizer": tokenizer.to_json(),
        "origin": loaded.origin.to_dict(),
        "horizon": defaults.horizon,
        "sampling": dataclasses.asdict(defaults.sampling),
        "seed": args.seed,
    }
    save_policy(args.output, loaded.params, meta)
    if loaded.text_only:
        print(
            f"{args.folder} holds a plain T5: the fusion with the screen's features is fresh "
            "and must be trained.",
            file=sys.stderr,
        )
    print(f"Wrote {args.output}: {_size(loaded.params)}, {tokenizer.vocab_size} tokens.")
    return 0


def _tokenizer(args: Import, vocab_size: int) -> Tokenizer:
    from common.models import hf_tokenizer, text

    if args.tokenizer == GRAMMAR:
        return text.Tokenizer.train(text.grammar_corpus(), vocab_size)
    folder = args.folder if args.tokenizer is None else pathlib.Path(args.tokenizer)
    tokenizer = hf_tokenizer.load(folder)
    if tokenizer.vocab_size > vocab_size:
        raise ConfigError(
            f"The tokenizer in {folder} has {tokenizer.vocab_size} tokens and the model "
            f"{vocab_size}; they don't belong together."
        )
    return tokenizer


def _export(args: Export) -> int:
    if args.max_shard_gb <= 0:
        raise ConfigError(f"--max-shard-gb must be above 0, not {args.max_shard_gb}.")
    _make_empty(args.output)
    from common.models import hf_tokenizer, pretrained
    from common.models.autoui import AutoUIConfig
    from common.models.text import Tokenizer
    from learner.checkpoint import load_policy

    params, meta = load_policy(args.checkpoint)
    origin = meta.get("origin")
    pretrained.save(
        args.output,
        AutoUIConfig.from_dict(meta["model"]),
        params,
        pretrained.Origin.from_dict(origin) if origin else None,
        int(args.max_shard_gb * 1e9),
    )
    hf_tokenizer.save(args.output, Tokenizer.from_json(meta["tokenizer"]))
    print(f"Wrote {args.output}: {_size(params)}, step {meta['step']}.")
    return 0


def _verify(args: Verify) -> int:
    from common.models import pretrained
    from common.models.reference import Reference, compare

    reference = Reference.load(args.reference)
    loaded = pretrained.load(args.folder)
    difference = compare(loaded.config, loaded.params, reference)
    print(json.dumps(dataclasses.asdict(difference)))
    return 0 if difference.is_small else 1


def _make_empty(folder: pathlib.Path) -> None:
    """Makes a folder, before all work; ConfigError if it can't be made or holds something."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        full = any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"{folder} can't be made: {error.strerror}.") from error
    if full:
        raise ConfigError(f"--output {folder} is not empty; give another folder.")


def _size(params: object) -> str:
    import jax

    return f"{sum(leaf.size for leaf in jax.tree.leaves(params)):,} parameters"


if __name__ == "__main__":
    sys.exit(main())
