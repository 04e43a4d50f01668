"""What a policy begins with: a run's checkpoint, another policy, or nothing."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from common.codec import EpisodeSpec
from common.models import autoui
from common.models.text import Tokenizer, grammar_corpus
from common.tasks import Task
from learner import config as configs
from learner.checkpoint import load_policy
from learner.dataset import Dataset

TEXT_WEIGHT = 20  # against the grammar's corpus, so that the tasks' words become one token each


class Start(NamedTuple):
    """What a policy begins with; `params` None are fresh ones, or those of the run's checkpoint."""

    model: autoui.AutoUIConfig
    tokenizer: Tokenizer
    origin: dict[str, Any] | None  # of a policy from elsewhere, for the way back
    params: autoui.Params | None


def begin(
    config: configs.LearnerConfig,
    tasks: Sequence[Task],
    saved: dict[str, Any] | None = None,
    recorded: Dataset | None = None,
) -> Start:
    """Takes up the run's checkpoint, or else another one that is named, or else begins afresh.

    A fresh policy takes the tokenizer of the recorded episodes that it is to learn from.
    """
    params, source = None, saved
    if saved is None and config.init:
        params, source = load_policy(pathlib.Path(config.init))
    if source is None and recorded is not None:
        tokenizer = Tokenizer.from_json(recorded.tokenizer)
    elif source is None:
        # A value on its own too: at the start of a typed text it has no space before it.
        texts = [t for task in tasks for t in (task.goal, *dict(task.values).values())]
        tokenizer = Tokenizer.train(
            itertools.chain(grammar_corpus(), texts * TEXT_WEIGHT), config.vocab_size
        )
    else:
        tokenizer = Tokenizer.from_json(source["tokenizer"])
    if source is not None and config.init:
        model = autoui.AutoUIConfig.from_dict(source["model"])
    else:
        preset = autoui.PRESETS[config.model]
        model = dataclasses.replace(preset, vocab_size=_vocab(config, tokenizer))
    origin = source.get("origin") if source is not None else None
    return Start(model, tokenizer, origin, params)


def episode_spec(model: autoui.AutoUIConfig) -> EpisodeSpec:
    """Returns the sizes of the episodes that a model acts in."""
    return EpisodeSpec(
        prompt_length=model.prompt_length,
        action_length=model.action_length,
        image_tokens=model.image_tokens,
        image_dim=model.image_dim,
        vocab_size=model.vocab_size,
        features_dtype=model.features_dtype,
    )


def _vocab(config: configs.LearnerConfig, tokenizer: Tokenizer) -> int:
    """The tokenizer's size, rounded up to what shards and vectorises well."""
    size = -(-tokenizer.vocab_size // 64) * 64
    return min(max(size, 64), max(config.vocab_size, size))
