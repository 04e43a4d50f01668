import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common import actions
from common.models import autoui
from common.models import sampling as sampling_module
from common.models.automaton import START
from common.models.distribution import FREE, LOG_FLOOR, SamplingConfig
from common.models.sampling import sampler
from common.types import EOS_ID

ROWS = 16
TAP = actions.render(actions.Action(actions.ActionType.DUAL_POINT, (0.8, 0.5), (0.8, 0.5)))


def _inputs(seed):
    rng = np.random.default_rng(seed)
    prompt_ids = rng.integers(2, 24, (ROWS, 10)).astype(np.int32)
    prompt_ids[np.arange(10) >= rng.integers(3, 11, ROWS)[:, None]] = 0
    return prompt_ids, rng.integers(0, 256, (ROWS, 6, 12)).astype(np.uint8)


@functools.cache
def stats(config, sampling, made=None):
    def recompute(params, prompt_ids, features, action_ids):
        return autoui.token_stats(params, config, prompt_ids, features, action_ids, sampling, made)

    return jax.jit(recompute)


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (1, {"temperature": 0.5}),
        (16, {}),
        (3, {"temperature": 1.5, "top_p": 0.8}),
        (16, {"temperature": 2.0, "top_k": 9, "top_p": 0.9}),
        (5, {"temperature": 0.0, "top_k": 7}),
    ],
)
def test_the_learner_recomputes_the_log_probs_of_the_sampler(config, params, rows, settings):
    sampling = SamplingConfig(**settings)
    sample, recompute = sampler(config, sampling), stats(config, sampling)
    lengths, lowest = set(), 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        scaled = jax.tree.map(lambda x, r=rng: x * np.float32(r.uniform(0.5, 2)), params)
        inputs = [x[:rows] for x in _inputs(seed)]
        action_ids, log_probs = sample(scaled, *inputs, jax.random.key(seed))
        found = jax.device_get(recompute(scaled, *inputs, action_ids))
        np.testing.assert_allclose(log_probs, found.log_probs, atol=1e-4)
        assert not found.outside.any()
        assert (found.entropy >= 0).all()
        lowest = min(lowest, log_probs.min())
        lengths |= set(np.count_nonzero(action_ids, axis=1).tolist())
    assert len(lengths) > 1
    assert lowest < -0.1
    assert sample._cache_size() == 1


def test_nothing_follows_the_end_of_an_action(config, params):
    action_ids, log_probs = map(
        np.asarray, sampler(config, SamplingConfig(3.0))(params, *_inputs(0), jax.random.key(0))
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
    greedy = sampler(config, SamplingConfig(0.0))
    action_ids, _ = greedy(params, *inputs, jax.random.key(0))
    np.testing.assert_array_equal(action_ids, chain)


def test_first_tokens_come_as_often_as_the_tempered_softmax_says(config, params):
    prompt_ids, features = (np.repeat(x[:1], ROWS, 0) for x in _inputs(2))
    blank = np.zeros((ROWS, 8), np.int32)
    logits = jax.jit(autoui.logits, static_argnums=1)(params, config, prompt_ids, features, blank)
    expected = jax.nn.softmax(logits[0, 0] / 1.5)
    keys = jax.random.split(jax.random.key(3), 60)
    sample = sampler(config, SamplingConfig(1.5))
    tokens = [np.asarray(sample(params, prompt_ids, features, key)[0][:, 0]) for key in keys]
    frequency = np.bincount(np.concatenate(tokens), minlength=24) / (60 * ROWS)
    np.testing.assert_allclose(frequency, expected, atol=4 * (0.25 / (60 * ROWS)) ** 0.5)


def test_it_is_the_same_for_configs_that_are_equal(config):
    equal = autoui.AutoUIConfig.from_dict(config.to_dict())
    assert sampler(equal) is sampler(config)
    assert sampler(equal, SamplingConfig(1)) is sampler(config, SamplingConfig(1.0))


def test_tokens_that_others_would_not_draw_are_outside_and_finite(config, params):
    inputs = _inputs(0)
    action_ids, _ = jax.device_get(sampler(config)(params, *inputs, jax.random.key(0)))
    narrow = SamplingConfig(top_k=3)
    found = jax.device_get(stats(config, narrow)(params, *inputs, action_ids))
    free = jax.device_get(stats(config, FREE)(params, *inputs, action_ids))
    emitted = action_ids > 0
    logits = np.asarray(
        jax.jit(autoui.logits, static_argnums=1)(params, config, *inputs, action_ids)
    )
    rank = (logits > np.take_along_axis(logits, action_ids[..., None], -1)).sum(-1)
    np.testing.assert_array_equal(found.outside, emitted & (rank >= 3))
    assert 0.2 < found.outside[emitted].mean() < 0.95
    assert (found.log_probs[found.outside] == LOG_FLOOR).all()
    inside = emitted & ~found.outside
    assert (found.log_probs[inside] >= free.log_probs[inside]).all()  # of fewer, each is likelier
    assert not found.log_probs[~emitted].any()

    def loss(params):
        stats = autoui.token_stats(params, config, *inputs, action_ids, narrow)
        return stats.log_probs.sum() + stats.entropy.sum()

    gradient = jax.jit(jax.grad(loss))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


# Decoding by the grammar.


@pytest.fixture
def actor(config, tokenizer, actions_automaton):
    """A model that has room for a tap and a few words, and its inputs."""
    length = len(tokenizer.encode(TAP)) + 12
    config = dataclasses.replace(config, vocab_size=640, decoder_layers=1, action_length=length)
    shapes = jax.eval_shape(functools.partial(autoui.init, config), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), shapes)
    return config, params


def one_by_one(made):
    """The same automaton, but nothing is forced: each token is drawn."""
    states = len(made.forced)
    return dataclasses.replace(
        made,
        forced=made.forced[:, :0],
        forced_count=np.zeros(states, np.int32),
        forced_end=np.arange(states, dtype=np.int16),
        block=1,
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_every_action_can_be_read_and_the_learner_recomputes_it(
    actor, tokenizer, actions_automaton, temperature
):
    config, params = actor
    sampling = SamplingConfig(temperature, top_p=1.0 if temperature == 1 else 0.9, grammar=True)
    sample = sampler(config, sampling, actions_automaton)
    recompute = stats(config, sampling, actions_automaton)
    kinds = set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        scaled = jax.tree.map(lambda x, r=rng: x * np.float32(r.uniform(0.3, 2)), params)
        inputs = _inputs(seed)
        action_ids, log_probs = jax.device_get(sample(scaled, *inputs, jax.random.key(seed)))
        for ids in action_ids:
            action = actions.parse(tokenizer.decode(ids))
            assert isinstance(action, actions.Action), tokenizer.decode(ids)
            kinds.add(action.type)
            assert ids[np.count_nonzero(ids) - 1] == EOS_ID
        found = jax.device_get(recompute(scaled, *inputs, action_ids))
        np.testing.assert_allclose(log_probs, found.log_probs, atol=1e-4)
        assert not found.outside.any()
    assert len(kinds) >= 5
    assert sample._cache_size() == recompute._cache_size() == 1


@pytest.mark.parametrize("tokenizer", ["pieces"], indirect=True)
def test_blocks_are_what_one_token_after_the_other_is(actor, actions_automaton):
    config, params = actor
    sampling = SamplingConfig(1.5, grammar=True)
    inputs = _inputs(0)
    (action_ids, log_probs), (expected_ids, expected_log_probs) = (
        jax.device_get(sampler(config, sampling, made)(params, *inputs, jax.random.key(5)))
        for made in (actions_automaton, one_by_one(actions_automaton))
    )
    np.testing.assert_array_equal(action_ids, expected_ids)
    np.testing.assert_allclose(log_probs, expected_log_probs, atol=1e-5)
    assert len(set(np.count_nonzero(action_ids, axis=1))) > 2


@pytest.mark.parametrize("tokenizer", ["bpe"], indirect=True)
def test_greedy_is_the_chain_of_likeliest_tokens_that_are_allowed(actor, actions_automaton):
    config, params = actor
    inputs = [x[:3] for x in _inputs(1)]
    chain = np.zeros((3, config.action_length), np.int32)

    @jax.jit
    def best(params, chain, position):
        logits = autoui.logits(params, config, *inputs, chain)
        allowed = actions_automaton.allowed_along(chain)
        return jnp.where(allowed, logits, -jnp.inf)[:, position].argmax(-1)

    done = np.zeros(3, bool)
    for position in range(config.action_length):
        chain[:, position] = np.where(done, 0, best(params, chain, position))
        done |= chain[:, position] == EOS_ID
    greedy = sampler(config, SamplingConfig(0.0, grammar=True), actions_automaton)
    action_ids, _ = greedy(params, *inputs, jax.random.key(0))
    np.testing.assert_array_equal(action_ids, chain)


@pytest.mark.parametrize("tokenizer", ["pieces"], indirect=True)
def test_forced_tokens_cost_no_call_of_the_model(actor, actions_automaton, monkeypatch):
    config, params = actor
    calls = []

    class Counted(autoui.AutoUI):
        def step_block(self, token_ids, *args):
            jax.debug.callback(lambda: calls.append(token_ids.shape[1]))
            return super().step_block(token_ids, *args)

    monkeypatch.setattr(sampling_module, "AutoUI", Counted)
    made = dataclasses.replace(actions_automaton)  # not the one that others have compiled
    sample = sampler(config, SamplingConfig(2.0, grammar=True), made)
    for seed in range(6):
        inputs = [x[seed : seed + 1] for x in _inputs(0)]
        action_ids, _ = jax.device_get(sample(params, *inputs, jax.random.key(seed)))
        jax.effects_barrier()
        state, drawn, run = START, 0, 0
        for token in action_ids[0, : np.count_nonzero(action_ids)]:
            left = made.tokens_left[made.next_state[state]][made.token_class]
            ends = made.forced_end[state] == made.done
            only = (left < 1 << 13).sum() == 1
            run = run + 1 if only and not ends else 0
            drawn += not only or (run == 16 and not ends)
            run %= 16
            state = made.next_state[state, made.token_class[token]]
        assert len(calls) == drawn
        assert set(calls) <= {1, made.block}
        calls.clear()


def test_parameters_that_are_no_numbers_end_too(actor, actions_automaton):
    config, params = actor
    sample = sampler(config, SamplingConfig(1.0, grammar=True), actions_automaton)
    broken = jax.tree.map(lambda x: x * np.float32(np.nan), params)
    action_ids, _ = sample(broken, *_inputs(0), jax.random.key(0))
    assert action_ids.shape == (ROWS, config.action_length)
