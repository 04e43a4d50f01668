"""Evaluates a checkpoint without a phone: `python launch/offline.py --recordings runs/x/episodes`.

The policy sees each recorded screen and says what it would do; AitW's rule says whether that is
what was done.
"""

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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import tyro

from common.errors import ConfigError
from launch import one_thread

if TYPE_CHECKING:
    import numpy as np

    from common.matching import Step

Predict = Callable[[str, "np.ndarray"], str]


@dataclasses.dataclass(frozen=True)
class Args:
    """Scores a policy on recorded episodes, step by step."""

    checkpoint: pathlib.Path
    """A run's `checkpoints` folder (the newest is taken), one step's folder in it, or what
    launch/convert.py made."""
    recordings: pathlib.Path
    """A run's `episodes` folder: those of its episodes that have screens are taken."""
    source: Literal["any", "policy", "expert"] = "any"
    """Whose episodes are taken."""
    failures: bool = False
    """Take the episodes too that were no success."""
    temperature: float = 0.0
    """At which actions are drawn; 0 takes the likeliest tokens."""
    seed: int = 0
    """Of the draws."""
    vision_folder: pathlib.Path | None = None
    """Folder of BLIP-2 or of its vision model, for a checkpoint that takes its features."""
    vision_dtype: Literal["float32", "bfloat16"] = "float32"
    """What it computes in; best what the actors took."""


def main(argv: Sequence[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv)
    # Orbax warns of handlers that it finds by itself.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        print(json.dumps(_run(args), indent=1))
    except ConfigError as error:
        print(f"offline: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: Args) -> dict[str, Any]:
    if not 0 <= args.temperature <= 100:
        raise ConfigError(f"--temperature must be in 0..100, not {args.temperature}.")
    if not 0 <= args.seed < 2**31:
        raise ConfigError(f"--seed must be in 0..{2**31 - 1}, not {args.seed}.")
    folders = sorted(path.parent for path in args.recordings.glob("*/episode.json"))
    if not folders:
        raise ConfigError(f"{args.recordings} has no episode with screens (*/episode.json).")
    one_thread.configure()  # before JAX is imported
    from actors.policy import Policy
    from common import matching
    from common.models import vision
    from common.models.autoui import AutoUIConfig
    from common.models.distribution import SamplingConfig
    from common.models.text import Tokenizer
    from learner.checkpoint import POLICY_META, load_policy

    params, meta = load_policy(args.checkpoint, (*POLICY_META, "sampling"))
    model = AutoUIConfig.from_dict(meta["model"])
    extract = vision.extractor(model, args.vision_folder, args.vision_dtype)
    sampling = SamplingConfig(**{**meta["sampling"], "temperature": args.temperature})
    policy = Policy(model, Tokenizer.from_json(meta["tokenizer"]), args.seed, sampling, extract)
    policy.set_params(params, meta["step"])
    episodes = read(folders, args.source, args.failures, lambda *seen: policy.act(*seen).text)
    score = matching.score(episodes)
    if not score.episodes:
        raise ConfigError(f"None of the {len(folders)} episodes in {args.recordings} is taken.")
    return {
        "checkpoint": str(args.checkpoint),
        "step": meta["step"],
        "recordings": str(args.recordings),
        **score.record(),
    }


def read(
    folders: Sequence[pathlib.Path], source: str, failures: bool, predict: Predict
) -> Iterator[list[Step]]:
    """Yields episodes with what a policy would do at each step that had an effect.

    Args:
      folders: Of one episode each: episode.json and a PNG a step.
      source: "any", or whose.
      failures: Take what was no success.
      predict: From prompt and screen [H, W, 3] to an action's text.

    Raises:
      ConfigError: A file is missing or is something else.
    """
    import numpy as np
    from PIL import Image

    from common.matching import Step

    for folder in folders:
        try:
            episode = json.loads((folder / "episode.json").read_text(encoding="utf-8"))
            if source not in ("any", episode["source"]):
                continue
            if not failures and episode["ending"] != "success":
                continue
            steps = []
            for number, (prompt, step) in enumerate(
                zip(episode["prompts"], episode["steps"], strict=True)
            ):
                if not step["invalid"]:
                    with Image.open(folder / f"{number:02d}.png") as opened:
                        image = np.asarray(opened.convert("RGB"))
                    prediction = predict(prompt, image)
                    steps.append(Step(step["action"], prediction, step.get("boxes", ())))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder} is no recorded episode: {error!r}.") from error
        yield steps


if __name__ == "__main__":
    sys.exit(main())
