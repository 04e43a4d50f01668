"""A model's outputs as another implementation computed them, to hold ours against."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from common.errors import ConfigError
from common.models import autoui, sampling
from common.models.autoui import AutoUIConfig, Params
from common.models.distribution import SamplingConfig
from common.types import EOS_ID, PAD_ID

TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Reference:
    """Inputs and outputs, with B rows, S prompt and A label tokens, V logits; id 0 is padding.

    Attributes:
      input_ids: [B, S].
      attention_mask: [B, S]; 0 on padding.
      image_features: [B, C], or [B, N, C].
      labels: [B, A].
      logits: [B, A, V], of each label given those before it.
      label_logprobs: [B, A]; what it says on padding does not matter.
      greedy: [B, 1 + T], the likeliest tokens after the start token; it may go on after an end.
    """

    input_ids: np.ndarray
    attention_mask: np.ndarray
    image_features: np.ndarray
    labels: np.ndarray
    logits: np.ndarray
    label_logprobs: np.ndarray
    greedy: np.ndarray

    @classmethod
    def load(cls, path: Path) -> Reference:
        """Reads an npz file; raises ConfigError if it can't be read or lacks an array."""
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                return cls(**{field.name: arrays[field.name] for field in dataclasses.fields(cls)})
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise ConfigError(f"Cannot read {path}: {error}.") from error


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far ours are from the reference."""

    logits_max_abs: float
    logprobs_max_abs: float
    greedy_equal: bool

    @property
    def is_small(self) -> bool:
        """Within 1e-4; not so if anything is not a number."""
        distances = self.logits_max_abs, self.logprobs_max_abs
        return self.greedy_equal and all(distance <= TOLERANCE for distance in distances)


def compare(config: AutoUIConfig, params: Params, reference: Reference) -> Difference:
    """Computes in full float32 what the reference holds.

    Raises:
      ConfigError: The reference is of a model with other inputs or outputs.
    """
    _check(config, reference)
    steps = reference.greedy.shape[1] - 1
    config = dataclasses.replace(config, dtype="float32", action_length=steps)
    features = jnp.asarray(reference.image_features, jnp.float32)
    features = features[:, None] if features.ndim == 2 else features
    inputs = jnp.asarray(reference.input_ids, jnp.int32), features
    labels = jnp.asarray(reference.labels, jnp.int32)
    with jax.default_matmul_precision("highest"):
        logits = jax.jit(autoui.logits, static_argnums=1)(params, config, *inputs, labels)
        stats = jax.jit(autoui.token_stats, static_argnums=1)
        log_probs = stats(params, config, *inputs, labels).log_probs
        greedy, _ = sampling.sampler(config, SamplingConfig(0.0))(
            params, *inputs, jax.random.key(0)
        )
    expected = np.where(reference.labels > 0, reference.label_logprobs, 0)
    return Difference(
        float(np.abs(logits - reference.logits).max()),
        float(np.abs(log_probs - expected).max()),
        bool(np.array_equal(greedy, _until_end(reference.greedy[:, 1:]))),
    )


def _until_end(token_ids: np.ndarray) -> np.ndarray:
    """Returns ids [B, T] with 0 after the first end token or padding."""
    ends = token_ids <= EOS_ID
    ended: np.ndarray = np.cumsum(ends, axis=1) - ends
    return np.where(ended > 0, PAD_ID, token_ids)


def _check(config: AutoUIConfig, reference: Reference) -> None:
    rows, prompt = reference.input_ids.shape[:1], reference.input_ids.shape[1:]
    labels, vocab = reference.labels.shape[1:], (config.vocab_size,)
    images = reference.image_features.shape[1:-1]
    wanted = {
        "attention_mask": rows + prompt,
        "image_features": rows + images + (config.image_dim,),
        "labels": rows + labels,
        "logits": rows + labels + vocab,
        "label_logprobs": rows + labels,
        "greedy": rows + reference.greedy.shape[1:],
    }
    for name, shape in wanted.items():
        if getattr(reference, name).shape != shape:
            found = list(getattr(reference, name).shape)
            raise ConfigError(f"The reference's {name} is {found}; this model's is {list(shape)}.")
    if not np.array_equal(reference.attention_mask != 0, reference.input_ids != PAD_ID):
        raise ConfigError("The reference masks other tokens than padding; this model can't.")
