"""Every critic: shapes, what it must not see, and what it must."""

import dataclasses

import jax
import numpy as np
import pytest

from common.errors import ConfigError
from common.models import autoui
from common.models.distribution import FREE
from learner import sharding
from learner.critic import CriticConfig, make_critic, read_prompts, value_loss
from learner.packing import pack
from learner.replay import Replay
from learner.update import UpdateConfig, make_updates
from tests.episodes import episode
from tests.learner.test_update import MODEL

WIDTH = 10
LENGTHS = (4, 3)


def encode(texts):
    """Stands for a frozen encoder; the episodes below have another text at each step."""
    seeds = [list(map(ord, text)) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=WIDTH) for seed in seeds])


def batch(size=9, lengths=LENGTHS):
    replay = Replay(len(lengths), np.random.default_rng(0))
    for seq, length in enumerate(lengths):
        made = episode(length, seq=seq, success=seq == 0)
        prompts = tuple(f"{seq} {step}" for step in range(length))
        replay.insert(dataclasses.replace(made, prompts=prompts))
    return pack(replay.sample(100), size, 10, encode)


@pytest.fixture(scope="module", params=["bag", "encoded"])
def critic(request):
    """(apply, params, encoded); the heads are made large enough for a change to be seen."""
    encoded = request.param == "encoded"
    config = CriticConfig(kind="t5" if encoded else "bag", hidden=16)
    made = make_critic(config, MODEL.vocab_size)
    params = jax.jit(made.init)(jax.random.key(0), batch())
    return jax.jit(made.apply), jax.tree.map(lambda x: 5 * x, params), encoded


def values(critic, rows):
    apply, params, _ = critic
    found = apply(params, rows)
    return np.asarray(found.state), np.asarray(found.instruction)


def test_two_heads_for_the_state_and_one_for_the_instruction(critic):
    state, instruction = values(critic, batch())
    assert state.shape == (2, 9) and instruction.shape == (9,)
    assert np.isfinite(state).all() and np.abs(state[0] - state[1]).min() > 0
    pessimistic = critic[0](critic[1], batch()).pessimistic()
    np.testing.assert_allclose(pessimistic, 1 / (1 + np.exp(-state.min(0))), rtol=1e-5)


def test_fresh_values_are_about_one_half():
    for kind in ("bag", "t5"):
        made = make_critic(CriticConfig(kind), MODEL.vocab_size)
        found, _ = jax.jit(made.init_with_output)(jax.random.key(0), batch())
        assert np.abs(np.concatenate([found.state.ravel(), found.instruction])).max() < 0.3


def test_padding_and_other_episodes_do_nothing(critic):
    state, instruction = values(critic, batch())
    for other in (batch(size=16), batch(size=4, lengths=LENGTHS[:1])):
        got, got_instruction = values(critic, other)
        rows = 7 if len(other.mask) == 16 else 4
        np.testing.assert_allclose(got[:, :rows], state[:, :rows], atol=1e-5)
        np.testing.assert_allclose(got_instruction[:rows], instruction[:rows], atol=1e-5)


def test_the_loss_does_not_see_padding(critic):
    apply, params, _ = critic

    @jax.jit
    @jax.value_and_grad
    def loss(params, rows):
        return value_loss(apply(params, rows), rows, rows.outcome, 0.02)

    short, long = (loss(params, batch(size)) for size in (7, 12))
    for a, b in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_instruction_s_value_is_that_of_the_first_prompt_alone(critic):
    rows = batch()
    _, instruction = values(critic, rows)
    for begin, end in ((0, 4), (4, 7)):
        np.testing.assert_array_equal(instruction[begin:end], instruction[begin])
    assert instruction[0] != instruction[4]
    first = rows.time == 0
    moved = rows._replace(
        features=255 - rows.features,
        prompt_ids=np.where(first[:, None], rows.prompt_ids, 7).astype(np.int32),
        texts=np.where(first[:, None], rows.texts, -rows.texts).astype(np.float32),
    )
    np.testing.assert_array_equal(values(critic, moved)[1], instruction)


def test_a_state_s_value_sees_the_screen_and_the_one_before_it(critic):
    rows = batch()
    state, _ = values(critic, rows)
    features = rows.features.copy()
    features[1] = 255 - features[1]
    changed, _ = values(critic, rows._replace(features=features))
    seen = np.abs(changed - state).max(0) > 1e-4
    expected = [False, True, critic[2], *[False] * 6]  # the bag knows the current screen alone
    assert seen.tolist() == expected
    features = rows.features.copy()
    features[3] = 255 - features[3]  # the last of its episode: the next has no screen before it
    changed, _ = values(critic, rows._replace(features=features))
    assert np.flatnonzero(np.abs(changed - state).max(0) > 1e-4).tolist() == [3]


def test_the_policy_reads_without_a_gradient_and_without_padding():
    params = autoui.init(MODEL, jax.random.key(0))
    ids = np.array([[5, 9, 1, 0, 0, 0, 0, 0]], np.int32)
    read = jax.jit(lambda params, ids: read_prompts(params, MODEL, ids))
    texts = read(params, ids)
    assert texts.shape == (1, MODEL.d_model)
    np.testing.assert_allclose(read(params, ids[:, :3]), texts, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda params: read(params, ids).sum()))(params)
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(("kind", "width"), [("t5", 0), ("roberta", WIDTH)])
def test_critics_on_encodings_learn_which_episodes_succeed(kind, width):
    config = UpdateConfig(critic=CriticConfig(kind, hidden=32), critic_lr=1e-2)
    updates = make_updates(MODEL, config, FREE, sharding.make_mesh(), text_width=width)
    state, rows = updates.init(jax.random.key(0)), batch()
    if not width:
        texts = jax.jit(read_prompts, static_argnums=1)(state.params, MODEL, rows.prompt_ids)
        rows = rows._replace(texts=np.zeros((9, 0), np.float32))
    for _ in range(60):
        state, _ = updates.improve_critic(state, rows)
    critic = make_critic(config.critic, MODEL.vocab_size)
    found = jax.jit(critic.apply)(
        state.critic_params, rows if width else rows._replace(texts=texts)
    )
    for value in (found.pessimistic(), jax.nn.sigmoid(found.instruction)):
        assert value[:4].min() > 0.8 and value[4:7].max() < 0.2


def test_an_unknown_critic_is_refused():
    with pytest.raises(ConfigError, match="must be one of bag, roberta, t5, not 'bert'"):
        CriticConfig("bert")
