import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common.errors import ConfigError
from common.models import autoui, distribution
from common.models.distribution import SamplingConfig

logits_of = jax.jit(autoui.logits, static_argnums=1)
token_stats = jax.jit(autoui.token_stats, static_argnums=(1, 5))


def _batch(config, rows=3, seed=0):
    rng = np.random.default_rng(seed)
    prompt_ids = rng.integers(2, config.vocab_size, (rows, 10)).astype(np.int32)
    prompt_ids[0, 7:] = 0
    action_ids = rng.integers(2, config.vocab_size, (rows, 6)).astype(np.int32)
    action_ids[1, 3:] = [1, 0, 0]
    features = rng.integers(0, 256, (rows, config.image_tokens, config.image_dim))
    return prompt_ids, features.astype(np.uint8), action_ids


def test_token_stats_are_those_of_the_softmax_of_the_logits(config, params):
    batch = _batch(config)
    log_probs, entropy, outside = token_stats(params, config, *batch, SamplingConfig(0.6))
    assert not outside.any()
    scaled = np.asarray(logits_of(params, config, *batch), np.float64) / 0.6
    softmax = np.exp(scaled) / np.exp(scaled).sum(-1, keepdims=True)
    for row, column in np.ndindex(batch[2].shape):
        token, spread = batch[2][row, column], softmax[row, column]
        expected = (np.log(spread[token]), -np.sum(spread * np.log(spread))) if token else (0, 0)
        found = log_probs[row, column], entropy[row, column]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_gradient_of_log_prob_and_entropy_is_that_of_the_plain_formula():
    rng = np.random.default_rng(1)
    logits = 3 * rng.normal(size=(5, 7)).astype(np.float32)
    ids = rng.integers(0, 7, 5)
    weights = rng.normal(size=(2, 5)).astype(np.float32)

    def plain(logits):
        log_softmax = jax.nn.log_softmax(logits)
        entropy = -jnp.sum(jnp.exp(log_softmax) * log_softmax, axis=-1)
        return jnp.sum(weights[0] * log_softmax[np.arange(5), ids] + weights[1] * entropy)

    def ours(logits):
        log_prob, entropy = distribution.log_prob_and_entropy(logits, ids)
        return jnp.sum(weights[0] * log_prob + weights[1] * entropy)

    np.testing.assert_allclose(jax.grad(ours)(logits), jax.grad(plain)(logits), atol=1e-6)


def test_gradient_is_finite_on_blank_rows_and_certain_tokens(config, params):
    prompt_ids, features, action_ids = _batch(config)
    prompt_ids[1], features[1], action_ids[1] = 0, 0, 0  # as a batch is padded

    def loss(params):
        log_probs, entropy, _ = autoui.token_stats(
            params, config, prompt_ids, features, action_ids, SamplingConfig(1e-3)
        )
        return log_probs.sum() + entropy.sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_a_token_changes_nothing_before_it_and_prompt_padding_changes_nothing(config, params):
    prompt_ids, features, action_ids = _batch(config)
    logits = logits_of(params, config, prompt_ids, features, action_ids)
    changed = action_ids.copy()
    changed[:, 3] = 7
    other = logits_of(params, config, prompt_ids, features, changed)
    np.testing.assert_array_equal(logits[:, :4], other[:, :4])
    assert not np.allclose(logits[:, 4:], other[:, 4:])
    longer = np.pad(prompt_ids, ((0, 0), (0, 5)))
    other = logits_of(params, config, longer, features, action_ids)
    np.testing.assert_allclose(logits, other, atol=1e-5)


def test_the_screen_matters_and_so_does_where_a_patch_stands(config, params):
    prompt_ids, features, action_ids = _batch(config)
    logits = logits_of(params, config, prompt_ids, features, action_ids)
    for changed in (255 - features, features[:, ::-1]):
        other = logits_of(params, config, prompt_ids, changed, action_ids)
        assert np.abs(logits - other).max() > 1e-2


def test_image_tokens_that_are_left_out_change_nothing(config):
    few = dataclasses.replace(config, image_grid=None, image_tokens=2)
    many = dataclasses.replace(few, image_tokens=5)
    params = autoui.init(few, jax.random.key(0))
    prompt_ids, features, action_ids = _batch(few)
    features = features.astype(np.float32) / 255
    padded = np.pad(features, ((0, 0), (0, 3), (0, 0)))
    expected = logits_of(params, few, prompt_ids, features, action_ids)
    found = logits_of(params, many, prompt_ids, padded, action_ids)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    other = logits_of(params, many, prompt_ids, padded + 0.01, action_ids)
    assert np.abs(other - expected).max() > 1e-4  # what is not 0 is seen


def test_bfloat16_computes_about_the_same(config, params):
    batch = _batch(config)
    expected = token_stats(params, config, *batch).log_probs
    half = dataclasses.replace(config, dtype="bfloat16")
    found = token_stats(params, half, *batch).log_probs
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, atol=0.2)


def test_fresh_parameters_are_plain_and_have_the_stated_spread(config, params):
    assert all(type(leaf) is type(jnp.zeros(1)) for leaf in jax.tree.leaves(params))
    attention = params["t5"]["encoder_0"]["attention"]
    for leaf, std in (
        (params["t5"]["embedding"], 1.0),
        (params["t5"]["head"], 32**-0.5),
        (attention["q"]["kernel"], (32 * 16) ** -0.5),
        (attention["k"]["kernel"], 32**-0.5),
        (params["t5"]["encoder_0"]["ff"]["wo"]["kernel"], 64**-0.5),
        (params["image"]["dense"]["kernel"], 12**-0.5),
        (params["fusion"]["gate"]["kernel"], 64**-0.5),
    ):
        assert float(leaf.std()) == pytest.approx(std, rel=0.2)
    assert (params["t5"]["encoder_norm"]["scale"] == 1).all()
    assert (params["fusion"]["q"]["bias"] == 0).all()


def test_a_tied_gated_model_scales_its_states_before_the_embedding(config, params):
    head = params["t5"]["embedding"].T * config.d_model**-0.5
    untied = {**params, "t5": {**params["t5"], "head": head}}
    without_head = {name: leaf for name, leaf in params["t5"].items() if name != "head"}
    tied = {**params, "t5": without_head}
    expected = logits_of(untied, config, *_batch(config))
    found = logits_of(tied, dataclasses.replace(config, tied=True), *_batch(config))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_presets_have_the_shapes_of_flan_t5_and_make_the_round_trip_through_json():
    sizes = {}
    for name, preset in autoui.PRESETS.items():
        assert autoui.AutoUIConfig.from_dict(json.loads(json.dumps(preset.to_dict()))) == preset
        shapes = jax.eval_shape(functools.partial(autoui.init, preset), jax.random.key(0))
        sizes[name] = sum(leaf.size for leaf in jax.tree.leaves(shapes["t5"]))
    published = {
        "small": 76_961_152,
        "base": 247_577_856,
        "large": 783_150_080,
        "xl": 2_849_757_184,
    }
    assert sizes == {"tiny": 426_880, **published}


def test_a_config_out_of_range_is_refused_with_a_sentence(config):
    for values, message in (
        ({"layers": 3}, "no field layers"),
        ({"d_model": 0}, "d_model is 0"),
        ({"num_heads": 2.0}, "num_heads is 2.0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"image_tokens": 7}, "does not hold image_tokens = 7"),
    ):
        with pytest.raises(ConfigError, match=message):
            autoui.AutoUIConfig.from_dict({**config.to_dict(), **values})
