"""Episodes laid end to end in one array of a fixed number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from common import actions
from common.models.autoui import AutoUIConfig
from learner.replay import Entry


class Batch(NamedTuple):
    """N steps of whole episodes; what is left over is padding with `mask` 0.

    Laid out flat because episodes differ much in length: a [B, T] rectangle was 40 % padding.
    """

    prompt_ids: np.ndarray  # [N, S] int32
    goal_ids: np.ndarray  # [N, S] int32, the episode's first prompt
    features: np.ndarray  # [N, I, C] uint8 or float32
    action_ids: np.ndarray  # [N, A] int32
    behaviour_log_probs: np.ndarray  # [N, A] float32
    reward: np.ndarray  # [N] float32
    discount: np.ndarray  # [N] float32; 0 at the end of an episode and on padding
    outcome: np.ndarray  # [N] float32, the episode's final reward
    targets: np.ndarray  # [N] float32, value targets remembered by the replay
    invalid: np.ndarray  # [N] float32
    repeats: np.ndarray  # [N] float32
    time: np.ndarray  # [N] float32, steps done before, over the horizon
    last_invalid: np.ndarray  # [N] float32, of the step before
    known: np.ndarray  # [N] float32; 1 where the outcome is known (not truncated), of no expert
    expert: np.ndarray  # [N] float32; 1 where nobody knows mu: an expert's, or of recorded data
    mask: np.ndarray  # [N] float32; 1 where the action may be learned from
    texts: np.ndarray  # [N, D] float32, encodings of the prompts; D is 0 where nobody made them
    importance: np.ndarray  # [N] float32, the episode's correction for how it was sampled
    touched: np.ndarray  # [N] int32, the image token that the action taps; -1: none, or not asked


def pack(
    entries: Sequence[Entry],
    size: int,
    horizon: int,
    encode: Callable[[Sequence[str]], np.ndarray] | None = None,
    grid: tuple[int, int] | None = None,
    importance: Sequence[float] | None = None,
) -> Batch:
    """Lays entries end to end into `size` rows and pads the rest.

    Args:
      entries: Whole episodes.
      size: N.
      horizon: Divides the number of steps done before.
      encode: Returns encodings [T, D] of T texts, for the critic.
      grid: Rows and columns of the image's tokens, to know which one is tapped.
      importance: Of each entry; None for 1.

    Raises:
      ValueError: if they do not fit; nothing is cut off in silence.
    """
    lengths = [len(entry.episode) for entry in entries]
    if sum(lengths) > size:
        raise ValueError(f"{sum(lengths)} steps do not fit in a batch of {size}")
    if not entries:
        raise ValueError("nothing to pack")

    def column(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
        out = np.zeros((size, *arrays[0].shape[1:]), dtype)
        out[: sum(lengths)] = np.concatenate(arrays)
        return out

    paths = [entry.episode.trajectory for entry in entries]
    spread = [np.ones(length, np.float32) for length in lengths]
    ends = np.cumsum(lengths) - 1
    discount = column([path.discount for path in paths], np.float32)
    discount[ends] = 0.0  # a truncated episode's last row only lends its value
    touched = np.full(size, -1, np.int32)
    if grid is not None:
        touched[: sum(lengths)] = [
            touched_token(action, grid) for entry in entries for action in entry.episode.actions
        ]
    return Batch(
        prompt_ids=column([path.prompt_ids for path in paths], np.int32),
        goal_ids=column(
            [
                np.repeat(path.prompt_ids[:1], length, 0)
                for path, length in zip(paths, lengths, strict=True)
            ],
            np.int32,
        ),
        features=column([path.features for path in paths], paths[0].features.dtype.type),
        action_ids=column([path.action_ids for path in paths], np.int32),
        behaviour_log_probs=column([path.behaviour_log_probs for path in paths], np.float32),
        reward=column([path.reward for path in paths], np.float32),
        discount=discount,
        outcome=column(
            [one * entry.episode.success for one, entry in zip(spread, entries, strict=True)],
            np.float32,
        ),
        targets=column([entry.targets for entry in entries], np.float32),
        invalid=column([path.invalid for path in paths], np.float32),
        repeats=column([path.repeats for path in paths], np.float32),
        time=column([np.arange(length) / horizon for length in lengths], np.float32),
        last_invalid=column(
            [np.concatenate([[0], path.invalid[:-1]]) for path in paths], np.float32
        ),
        known=column(
            [
                one * (entry.episode.ending != "truncated" and entry.episode.source != "expert")
                for one, entry in zip(spread, entries, strict=True)
            ],
            np.float32,
        ),
        expert=column(
            [
                one * (entry.episode.source != "policy")
                for one, entry in zip(spread, entries, strict=True)
            ],
            np.float32,
        ),
        mask=column([path.mask for path in paths], np.float32),
        texts=column(
            [
                encode(entry.episode.prompts) if encode else np.zeros((length, 0))
                for length, entry in zip(lengths, entries, strict=True)
            ],
            np.float32,
        ),
        importance=column(
            [
                one * factor
                for one, factor in zip(spread, importance or [1.0] * len(entries), strict=True)
            ],
            np.float32,
        ),
        touched=touched,
    )


def blank(model: AutoUIConfig, text_width: int) -> Batch:
    """One row of zeros with the model's shapes, for initialisation."""
    row = np.zeros(1, np.float32)
    prompt = np.zeros((1, model.prompt_length), np.int32)
    action = np.zeros((1, model.action_length), np.int32)
    return Batch(
        prompt_ids=prompt,
        goal_ids=prompt,
        features=np.zeros((1, model.image_tokens, model.image_dim), model.features_dtype),
        action_ids=action,
        behaviour_log_probs=action.astype(np.float32),
        reward=row,
        discount=row,
        outcome=row,
        targets=row,
        invalid=row,
        repeats=row,
        time=row,
        last_invalid=row,
        known=row,
        expert=row,
        mask=row,
        texts=np.zeros((1, text_width), np.float32),
        importance=row,
        touched=np.full(1, -1, np.int32),
    )


def touched_token(action: str, grid: tuple[int, int] | None) -> int:
    """Returns which image token an action's text taps; -1 if it taps none, or there is no grid."""
    parsed = actions.parse(action)
    if grid is None or not isinstance(parsed, actions.Action) or not parsed.is_tap:
        return -1
    row, column = (
        min(int(at * cells), cells - 1) for at, cells in zip(parsed.touch_yx, grid, strict=True)
    )
    return row * grid[1] + column
