import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common.models import autoui
from common.models.sampling import sampler

ROWS = 16


def _inputs(seed):
    rng = np.random.default_rng(seed)
    prompt_ids = rng.integers(2, 24, (ROWS, 10)).astype(np.int32)
    prompt_ids[np.arange(10) >= rng.integers(3, 11, ROWS)[:, None]] = 0
    return prompt_ids, rng.integers(0, 256, (ROWS, 6, 12)).astype(np.uint8)


@pytest.mark.parametrize("seed", range(2))
def test_the_learner_recomputes_the_log_probs_of_the_sampler(config, params, seed):
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda x: x * jnp.asarray(rng.uniform(0.5, 2), jnp.float32), params)
    inputs = _inputs(seed)
    sample = sampler(config)
    stats = jax.jit(lambda *args: autoui.token_stats(args[0], config, *args[1:]))
    for temperature in (0.5, 1.0, 2.0):
        action_ids, log_probs = sample(params, *inputs, jax.random.key(seed), temperature)
        expected, _ = stats(params, *inputs, action_ids, temperature)
        np.testing.assert_allclose(log_probs, expected, atol=1e-4)
        assert np.any(log_probs < -0.1)
    action_ids, log_probs = sample(params, *inputs, jax.random.key(seed), 0.0)
    expected, _ = stats(params, *inputs, action_ids, 1.0)
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)


def test_nothing_follows_the_end_of_an_action(config, params):
    action_ids, log_probs = map(
        np.asarray, sampler(config)(params, *_inputs(0), jax.random.key(0), 3.0)
    )
    assert action_ids.dtype == np.int32
    assert log_probs.dtype == np.float32
    lengths = set()
    for row, probs in zip(action_ids, log_probs, strict=True):
        ends = np.flatnonzero(row <= 1)
        length = ends[0] + row[ends[0]] if len(ends) else len(row)  # with EOS, without padding
        assert not row[length:].any()
        assert not probs[length:].any()
        assert (probs[:length] < 0).all()
        lengths.add(int(length))
    assert len(lengths) >= 3  # else this has shown little


def test_greedy_is_the_chain_of_likeliest_tokens(config, params):
    inputs = _inputs(1)
    chain = np.zeros((ROWS, config.action_length), np.int32)
    done = np.zeros(ROWS, bool)
    logits_of = jax.jit(lambda *args: autoui.logits(params, config, *args))
    for position in range(config.action_length):
        best = np.asarray(logits_of(*inputs, chain)[:, position]).argmax(-1)
        chain[:, position] = np.where(done, 0, best)
        done |= best <= 1
    action_ids, _ = sampler(config)(params, *inputs, jax.random.key(0), 0.0)
    np.testing.assert_array_equal(action_ids, chain)


def test_first_tokens_come_as_often_as_the_tempered_softmax_says(config, params):
    prompt_ids, features = (np.repeat(x[:1], ROWS, 0) for x in _inputs(2))
    blank = np.zeros((ROWS, 8), np.int32)
    logits = jax.jit(autoui.logits, static_argnums=1)(params, config, prompt_ids, features, blank)
    expected = jax.nn.softmax(logits[0, 0] / 1.5)
    keys = jax.random.split(jax.random.key(3), 60)
    tokens = [
        np.asarray(sampler(config)(params, prompt_ids, features, key, 1.5)[0][:, 0]) for key in keys
    ]
    frequency = np.bincount(np.concatenate(tokens), minlength=24) / (60 * ROWS)
    np.testing.assert_allclose(frequency, expected, atol=4 * (0.25 / (60 * ROWS)) ** 0.5)


def test_it_compiles_once_for_all_temperatures_and_configs_that_are_equal(config, params):
    config = dataclasses.replace(config, action_length=3)
    inputs = _inputs(0)
    for temperature in (0.0, 0.5, 1.0):
        sampler(config)(params, *inputs, jax.random.key(0), temperature)
    equal = autoui.AutoUIConfig.from_dict(config.to_dict())
    assert sampler(equal) is sampler(config)
    assert sampler(config)._cache_size() == 1
