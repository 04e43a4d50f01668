"""What is left of a softmax by temperature, grammar, top_k and top_p."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from common.errors import ConfigError
from common.models.distribution import FREE, SamplingConfig, restrict


def slow_twin(logits, sampling, allowed):
    """The probabilities [V] of one row, one rule after the other."""
    left = [i for i in range(len(logits)) if allowed[i]]
    weight = {i: math.exp(logits[i] / (sampling.temperature or 1)) for i in left}
    left.sort(key=lambda i: -weight[i])
    if sampling.top_k:
        left = left[: sampling.top_k]
    total, kept, before = sum(weight[i] for i in left), [], 0.0
    for i in left:
        if before < sampling.top_p:
            kept.append(i)
        before += weight[i] / total
    total = sum(weight[i] for i in kept)
    return [weight[i] / total if i in kept else 0.0 for i in range(len(logits))]


@pytest.mark.parametrize("allow", ["all", "some"])
def test_it_is_the_slow_twin(allow):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20, 30)).astype(np.float32)
    allowed = rng.random((20, 30)) < (1 if allow == "all" else 0.4)
    allowed[:, 0] = True
    for settings in itertools.product((0.5, 1.0, 2.0), (0, 1, 4, 99), (0.3, 0.9, 1)):
        sampling = SamplingConfig(*settings, grammar=allow == "some")
        kept = restrict(logits, sampling, None if allow == "all" else allowed)
        expected = [slow_twin(*row) for row in zip(logits, [sampling] * 20, allowed, strict=True)]
        np.testing.assert_allclose(jax.nn.softmax(kept), expected, atol=1e-6)


def test_by_hand():
    logits = jnp.log(jnp.array([0.5, 0.25, 0.15, 0.1]))
    probabilities = jax.nn.softmax(restrict(logits, SamplingConfig(top_p=0.6)))
    np.testing.assert_allclose(probabilities, [2 / 3, 1 / 3, 0, 0], atol=1e-6)  # .5 < .6 <= .75
    probabilities = jax.nn.softmax(restrict(logits, SamplingConfig(top_k=3)))
    np.testing.assert_allclose(probabilities, [5 / 9, 2.5 / 9, 1.5 / 9, 0], atol=1e-6)


def test_the_grammar_is_not_forgotten():
    for grammar in (True, False):
        allowed = None if grammar else jnp.ones(3, bool)
        with pytest.raises(ValueError, match="automaton"):
            restrict(jnp.zeros(3), SamplingConfig(grammar=grammar), allowed)


def test_by_default_nothing_changes():
    logits = jnp.array([[0.3, -7.25, 2.0]])
    np.testing.assert_array_equal(restrict(logits, FREE), logits)


def test_the_gradient_is_that_of_what_is_left():
    logits = jnp.array([1.0, 0.5, -0.5, -1.0])

    def log_prob(logits):
        return jax.nn.log_softmax(restrict(logits, SamplingConfig(0.5, top_k=2)))[1]

    p = np.exp([2.0, 1.0]) / np.exp([2.0, 1.0]).sum()  # d log p_1 / dx_j = ([j = 1] - p_j) / T
    expected = [-p[0] / 0.5, (1 - p[1]) / 0.5, 0, 0]
    np.testing.assert_allclose(jax.grad(log_prob)(logits), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "temperature must be a number of 0 or more, not -0.1"),
        ({"temperature": math.nan}, "temperature must be a number"),
        ({"temperature": "1"}, "temperature must be a number"),
        ({"top_k": -1}, "top_k must be an integer of 0 or more, not -1"),
        ({"top_k": 2.5}, "top_k must be an integer"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, not 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, not 1.1"),
        ({"grammar": 1}, "grammar must be true or false, not 1"),
    ],
)
def test_what_is_out_of_range_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        SamplingConfig(**values)
