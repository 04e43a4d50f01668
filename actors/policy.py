"""The policy as an actor uses it: one observation in, one action text out, with its record."""

from __future__ import annotations

import copy
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from common.models import vision
from common.models.automaton import automaton_for
from common.models.autoui import AutoUIConfig, Params
from common.models.distribution import FREE, SamplingConfig
from common.models.sampling import sampler
from common.models.text import Tokenizer

EXPERT_VERSION = -1


class Decision(NamedTuple):
    """An action and all that the learner needs to know about how it came about."""

    text: str
    prompt_ids: np.ndarray  # [S] int32
    features: np.ndarray  # [N, C] uint8, or float32 of an image encoder
    action_ids: np.ndarray  # [A] int32, as they were emitted
    log_probs: np.ndarray  # [A] float32, of each emitted token
    version: int


class Policy:
    """Samples actions from the newest parameters that it was given.

    Attributes:
      sampling: How.
      version: Their step, or None before the first.
    """

    def __init__(
        self,
        config: AutoUIConfig,
        tokenizer: Tokenizer,
        seed: int,
        sampling: SamplingConfig = FREE,
        extract: vision.FeatureExtractor | None = None,
    ):
        """Takes what makes the model's features of a screen; needs none for a model of pixels.

        Raises:
          ConfigError: The model takes an image encoder's features, and there is no encoder.
        """
        self._config = config
        self._tokenizer = tokenizer
        self._extract = extract or vision.extractor(config)
        self.sampling = sampling
        automaton = automaton_for(sampling, tokenizer, config.vocab_size, config.action_length)
        self._sample = sampler(config, sampling, automaton)
        self._key = jax.random.key(seed)
        self._draws = 0
        self._params: Params | None = None
        self.version: int | None = None

    def set_params(self, params: Params, version: int) -> None:
        """Acts by these parameters from now on.

        On a CPU no copy is made of aligned arrays: JAX computes on the memory that they view, such
        as a mapped file, so they must never change. Nothing here donates them.
        """
        self._params = None  # a large policy must not be there twice
        self._params = jax.device_put(params)
        self.version = version

    def twin(self) -> Self:
        """Returns one with draws of its own and the same parameters, which are there once."""
        return copy.copy(self)

    def reseed(self, seed: int) -> None:
        """Starts the draws anew: the same seed draws the same actions for the same screens."""
        self._key, self._draws = jax.random.key(seed), 0

    def act(self, prompt: str, image: np.ndarray) -> Decision:
        """Draws an action for a prompt and a screen [H, W, 3] uint8."""
        if self._params is None or self.version is None:
            raise ValueError("act() needs set_params() first")
        prompt_ids, features = self._encode(prompt, image)
        self._draws += 1
        action_ids, log_probs = jax.device_get(
            self._sample(
                self._params,
                jnp.asarray(prompt_ids[None]),
                jnp.asarray(features[None]),
                jax.random.fold_in(self._key, self._draws),
            )
        )
        text = self._tokenizer.decode(action_ids[0])
        return Decision(text, prompt_ids, features, action_ids[0], log_probs[0], self.version)

    def label(self, prompt: str, image: np.ndarray, text: str) -> Decision:
        """Records an expert's action as if it had been drawn; its log-probabilities are 0."""
        prompt_ids, features = self._encode(prompt, image)
        action_ids = self._tokenizer.encode_action(text, self._config.action_length)
        log_probs = np.zeros(self._config.action_length, np.float32)
        return Decision(text, prompt_ids, features, action_ids, log_probs, EXPERT_VERSION)

    def _encode(self, prompt: str, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        prompt_ids = self._tokenizer.encode_prompt(prompt, self._config.prompt_length)
        return prompt_ids, self._extract(image)
