import dataclasses

import jax
import pytest

from common.models import autoui


@pytest.fixture(scope="session")
def config():
    """A model that compiles fast; its vocabulary is so small that random actions end early."""
    return dataclasses.replace(
        autoui.PRESETS["tiny"],
        vocab_size=24,
        d_model=32,
        d_kv=16,
        d_ff=64,
        encoder_layers=1,
        image_dim=12,
        image_tokens=6,
        image_grid=(3, 2),
        prompt_length=10,
        action_length=8,
    )


@pytest.fixture(scope="session")
def params(config):
    return autoui.init(config, jax.random.key(0))
