"""Adapters begin as nothing, and merged they are what they were beside the kernels."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from common.errors import ConfigError
from common.models import autoui, lora
from common.models.lora import LoraConfig

CONFIG = LoraConfig(rank=4, alpha=6.0)


def inputs(config):
    rng = np.random.default_rng(0)
    prompt_ids = rng.integers(2, config.vocab_size, (3, 7)).astype(np.int32)
    prompt_ids[1, 4:] = 0
    features = rng.integers(0, 256, (3, config.image_tokens, config.image_dim)).astype(np.uint8)
    return prompt_ids, features, rng.integers(2, config.vocab_size, (3, 5)).astype(np.int32)


def logits(params, config):
    return jax.jit(autoui.logits, static_argnums=1)(params, config, *inputs(config))


@pytest.fixture(scope="module")
def parts(params):
    """(trained, frozen), with a B that is no longer 0."""
    trained, frozen = lora.split(params, CONFIG, jax.random.key(1))

    def learned(path, leaf):
        moved = 0.3 * jax.random.normal(jax.random.key(len(str(path))), leaf.shape)
        return leaf + moved if path[-1].key == "lora_b" else leaf

    return jax.tree_util.tree_map_with_path(learned, trained), frozen


def test_the_start_is_the_base_bitwise(config, params):
    trained, frozen = lora.split(params, CONFIG, jax.random.key(1))
    together = lora.union(frozen, lora.scaled(trained, CONFIG))
    np.testing.assert_array_equal(logits(together, config), logits(params, config))


def test_merged_equals_adapted(config, params, parts):
    trained, frozen = parts
    together = lora.union(frozen, lora.scaled(trained, CONFIG))
    merged = lora.merge(together)
    assert jax.tree.structure(merged) == jax.tree.structure(params)
    adapted = logits(together, config)
    np.testing.assert_allclose(logits(merged, config), adapted, atol=1e-5)
    assert np.abs(adapted - logits(params, config)).max() > 0.1


def test_a_merged_kernel_is_the_paper_s(parts):
    trained, frozen = parts
    merged = lora.merge(lora.union(frozen, lora.scaled(trained, CONFIG)))
    where = ("t5", "decoder_0", "cross", "o")
    added, base, got = (
        functools.reduce(dict.__getitem__, where, tree) for tree in (trained, frozen, merged)
    )
    expected = base["kernel"] + 6.0 / 4 * added["lora_a"] @ added["lora_b"]
    np.testing.assert_allclose(got["kernel"], expected, atol=1e-6)


def test_every_leaf_is_on_one_side_and_every_attention_has_adapters(config, params):
    trained, frozen = (
        traverse_util.flatten_dict(tree) for tree in lora.split(params, CONFIG, jax.random.key(1))
    )
    added = {path for path in trained if path[-1].startswith("lora")}
    assert frozen.keys().isdisjoint(trained)
    assert frozen.keys() | trained.keys() - added == traverse_util.flatten_dict(params).keys()
    assert {path[0] for path in trained.keys() - added} == {"fusion", "image"}
    assert {path[0] for path in added} == {"t5"}
    attentions = config.encoder_layers + 2 * config.decoder_layers
    assert len(added) == attentions * 4 * 2


def test_rank_0_trains_everything(params):
    trained, frozen = lora.split(params, LoraConfig(), jax.random.key(1))
    assert trained is params and frozen == {}
    assert lora.union(frozen, lora.scaled(trained, LoraConfig())) == params


@pytest.mark.parametrize(
    ("config", "published"),
    [
        # flan-t5-base has 247,577,856 parameters; image and fusion have
        # 1409 * 768 + 4 * 768 * 768 + 1536 * 768 + 4 * 768 = 4,624,128
        (LoraConfig(), 2 * (247_577_856 + 4_624_128)),
        # of 144 matrices A is 768 x 16 and B 16 x 768
        (LoraConfig(rank=16), 2 * (144 * 16 * (768 + 768) + 4_624_128)),
        (LoraConfig(rank=16, whole=()), 2 * 144 * 16 * (768 + 768)),
    ],
)
def test_bytes_published_of_base(config, published):
    def trained(key):
        return lora.split(autoui.init(autoui.PRESETS["base"], key), config, key)[0]

    shapes = jax.tree.leaves(jax.eval_shape(trained, jax.random.key(0)))
    assert sum(leaf.size * jnp.bfloat16.dtype.itemsize for leaf in shapes) == published


def test_a_config_comes_back_from_json_and_nonsense_is_refused():
    assert LoraConfig(**{**dataclasses.asdict(CONFIG), "whole": ["image"]}).whole == ("image",)
    for bad in ({"rank": -1}, {"alpha": 0.0}, {"whole": ("t5",)}):
        with pytest.raises(ConfigError, match="lora"):
            LoraConfig(**bad)
