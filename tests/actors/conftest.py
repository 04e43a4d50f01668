"""A policy that is small enough to compile in a moment."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from common.models import autoui
from common.models.autoui import AutoUIConfig
from common.models.text import Tokenizer, grammar_corpus


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(grammar_corpus(), vocab_size=600)


@pytest.fixture(scope="session")
def config(tokenizer) -> AutoUIConfig:
    return dataclasses.replace(
        AutoUIConfig(),
        vocab_size=tokenizer.vocab_size,
        d_model=16,
        d_kv=8,
        d_ff=16,
        encoder_layers=1,
        decoder_layers=1,
        action_length=8,
    )


@pytest.fixture(scope="session")
def params(config):
    """Random numbers in the right shapes; `init` itself takes seconds to compile."""
    shapes = jax.eval_shape(functools.partial(autoui.init, config), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32), shapes)
