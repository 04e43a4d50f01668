"""What the policy's loss does to single tokens, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common.errors import ConfigError
from learner.losses import PolicyLossConfig, action_weights, grounding, policy_loss
from learner.packing import pack
from learner.replay import Replay
from tests.episodes import episode


def batch(length=4, **changes):
    replay = Replay(1, np.random.default_rng(0))
    replay.insert(episode(length))
    return pack(replay.sample(length), length, horizon=10)._replace(**changes)


def test_advantages_keep_their_mean_and_are_clipped():
    # std of [1, 2, 3, 6] is 1.871; none is moved by the mean of 3
    weights = action_weights(jnp.array([1.0, 2.0, 3.0, 6.0]), batch(), PolicyLossConfig())
    np.testing.assert_allclose(weights, [0.5345, 1.0690, 1.6036, 3.0], atol=1e-4)


def test_the_negative_side_is_small():
    weights = action_weights(jnp.array([-5.0, 0.0, 0.0, 5.0]), batch(), PolicyLossConfig())
    np.testing.assert_allclose(weights, [-0.3, 0.0, 0.0, 1.4142], atol=1e-4)


def test_small_advantages_are_not_blown_up():
    weights = action_weights(jnp.full(4, 0.01), batch(), PolicyLossConfig())
    np.testing.assert_allclose(weights, 0.1, rtol=1e-5)  # over the floor of .1, not the std of 0


def test_invalid_and_repeated_actions_are_never_imitated():
    spoilt = batch(
        invalid=np.array([1, 0, 0, 0], np.float32), repeats=np.array([0, 2, 0, 0], np.float32)
    )
    weights = action_weights(jnp.ones(4), spoilt, PolicyLossConfig())
    assert (np.asarray(weights) > 0).tolist() == [False, False, True, True]


def test_importance_scales_the_weights():
    scaled = batch(importance=np.array([1.0, 0.5, 0.25, 1.0], np.float32))
    config = PolicyLossConfig(binary=True)
    assert action_weights(jnp.ones(4), scaled, config).tolist() == [1, 0.5, 0.25, 1]


def test_binary_weights_are_one_above_the_threshold_and_nothing_below():
    config = PolicyLossConfig(binary=True, threshold=0.1)
    weights = action_weights(jnp.array([-3.0, 0.1, 0.11, 9.0]), batch(), config)
    assert weights.tolist() == [0, 0, 1, 1]


def gradient(log_probs, weights, mu):
    """d loss / d log_probs of a batch of one step and its tokens."""
    row = batch(1, action_ids=np.full((1, 2), 5), behaviour_log_probs=np.array([mu], np.float32))

    def loss(x):
        known_mu = row.behaviour_log_probs
        entropy = jnp.zeros((1, 2))
        config = PolicyLossConfig()
        return policy_loss(x, known_mu, entropy, jnp.array([weights]), row, config).loss

    return jax.grad(loss)(jnp.array([log_probs]))[0]


def test_the_positive_side_has_the_truncated_ratio_of_the_whole_action():
    # log rho = (-1 - .5) - (-.5 - .5) = -.5: exp(-.5) = .6065 on both of two tokens
    np.testing.assert_allclose(gradient([-1.0, -0.5], 2.0, [-0.5, -0.5]), -0.6065, atol=1e-4)
    np.testing.assert_allclose(gradient([-0.1, -0.1], 2.0, [-3.0, -3.0]), -1.0)  # truncated at 1


def test_the_negative_side_lets_go_of_tokens_that_became_rare():
    # ratios: exp(-.1) = .905 goes on; exp(-.5) = .607 < .8 stops
    np.testing.assert_allclose(gradient([-0.6, -1.0], -0.3, [-0.5, -0.5]), [0.1357, 0], atol=1e-4)
    # probability exp(-3) = .05 < .1 stops, whatever its ratio
    np.testing.assert_allclose(gradient([-3.0, -0.1], -0.3, [-3.0, -0.1]), [0, 0.15], atol=1e-6)


def test_padding_tokens_and_masked_steps_have_no_gradient():
    row = batch(2, mask=np.array([1, 0], np.float32))

    def loss(x):
        weights = action_weights(jnp.ones(2), row, PolicyLossConfig(entropy=0.5))
        config = PolicyLossConfig(entropy=0.5)
        return policy_loss(x, row.behaviour_log_probs, x**2, weights, row, config).loss

    grads = jax.grad(loss)(jnp.full((2, 6), -0.5))
    assert (np.asarray(grads[0, :5]) != 0).all()
    assert grads[0, 5] == 0
    assert (np.asarray(grads[1]) == 0).all()


def test_an_unknown_form_is_named():
    with pytest.raises(ConfigError, match="penalty must be one of mask, reward, none, not 'los'"):
        PolicyLossConfig(penalty="los")


def test_grounding_is_the_chance_that_some_token_of_the_prompt_looks_at_what_is_tapped():
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.ones(6), (4, 5)).astype(np.float32)
    prompt_ids = np.array([[7, 7, 7, 0, 0], [7] * 5, [7, 0, 0, 0, 0], [7] * 5])
    touched = np.array([2, -1, 0, 5])
    terms = []
    for row, token in enumerate(touched):
        if token >= 0:
            real = prompt_ids[row] > 0
            terms.append(-np.log(1 - np.prod(1 - attention[row, real, token])))
    assert grounding(attention, prompt_ids, touched) == pytest.approx(np.mean(terms), rel=1e-4)
    assert grounding(attention, prompt_ids, np.full(4, -1)) == 0


def test_one_token_that_looks_is_enough():
    attention = np.full((1, 3, 4), 0.25, np.float32)
    attention[0, 1] = [0, 1, 0, 0]
    assert grounding(attention, np.full((1, 3), 7), np.array([1])) == pytest.approx(0, abs=1e-4)
    slope = jax.grad(lambda a: grounding(a, np.full((1, 3), 7), np.array([1])))(attention)
    assert np.isfinite(np.asarray(slope)).all()


def test_grounding_raises_the_attention_to_what_is_tapped_and_to_nothing_where_nothing_is():
    prompt_ids, touched = np.full((2, 3), 7), np.array([1, -1])

    def loss(scores):
        return grounding(jax.nn.softmax(scores), prompt_ids, touched)

    slope = np.asarray(jax.grad(loss)(jnp.zeros((2, 3, 4))))
    assert (slope[0, :, 1] < 0).all() and (slope[0][:, [0, 2, 3]] > 0).all()
    assert (slope[1] == 0).all()
