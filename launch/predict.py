"""What a policy does on one screen: `python launch/predict.py --checkpoint ... --image ...`."""

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
from typing import Literal

import tyro

from common.errors import ConfigError
from launch import one_thread


@dataclasses.dataclass(frozen=True)
class Args:
    """Prints the action that a checkpoint's policy takes on a screenshot, and what it means."""

    checkpoint: pathlib.Path
    """A run's `checkpoints` folder (the newest is taken), one step's folder in it, or what
    launch/convert.py made."""
    image: pathlib.Path
    """The screenshot, in any format that Pillow reads."""
    goal: str
    """What the policy is asked to do."""
    previous: str = ""
    """Its last action: the whole text, or what follows `Action Decision: `."""
    output: pathlib.Path | None = None
    """Where the screenshot goes with the action drawn on it, as PNG or by its ending."""
    temperature: float = 0.0
    """At which the action is drawn; 0 takes the likeliest tokens."""
    seed: int = 0
    """Of the draw."""
    vision_folder: pathlib.Path | None = None
    """Folder of BLIP-2 or of its vision model, for a checkpoint that takes its features."""
    vision_dtype: Literal["float32", "bfloat16"] = "float32"
    """What it computes in; best what the actors took."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    # Orbax warns of handlers that it finds by itself.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        _check(args)
        _run(args)
    except ConfigError as error:
        print(f"predict: {error}", file=sys.stderr)
        return 2
    return 0


def _check(args: Args) -> None:
    if not 0 <= args.temperature <= 100:
        raise ConfigError(f"--temperature must be in 0..100, not {args.temperature}.")
    if not 0 <= args.seed < 2**31:
        raise ConfigError(f"--seed must be in 0..{2**31 - 1}, not {args.seed}.")


def _run(args: Args) -> None:
    one_thread.configure()  # before JAX is imported
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    from actors.policy import Policy
    from common import actions
    from common.models import vision
    from common.models.autoui import AutoUIConfig
    from common.models.distribution import SamplingConfig
    from common.models.text import Tokenizer
    from launch import drawing
    from learner.checkpoint import POLICY_META, load_policy

    try:
        with Image.open(args.image) as opened:
            screen = opened.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise ConfigError(f"--image {args.image} can't be read: {error}.") from error
    params, meta = load_policy(args.checkpoint, (*POLICY_META, "sampling"))
    model = AutoUIConfig.from_dict(meta["model"])
    extract = vision.extractor(model, args.vision_folder, args.vision_dtype)
    sampling = SamplingConfig(**{**meta["sampling"], "temperature": args.temperature})
    policy = Policy(model, Tokenizer.from_json(meta["tokenizer"]), args.seed, sampling, extract)
    policy.set_params(params, meta["step"])
    prompt = actions.prompt(args.goal, actions.decision(args.previous) or args.previous)
    text = policy.act(prompt, np.asarray(screen)).text
    action = actions.parse(text)
    print(text)
    print(json.dumps(dataclasses.asdict(action)))
    if args.output:
        try:
            drawing.draw(screen, action).save(args.output)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--output {args.output} can't be written: {error}.") from error


if __name__ == "__main__":
    sys.exit(main())
