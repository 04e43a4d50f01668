"""What an episode is worth replaying."""

import numpy as np
import pytest

from learner import config as configs
from learner import presets
from learner.priorities import (
    EpisodeTerms,
    PriorityConfig,
    RunningMeans,
    importance,
    priority,
)

TERMS = EpisodeTerms(td=0.4, rho=0.8, entropy=0.5)


def test_the_terms_are_weighted_and_the_surprise_multiplies():
    # (.4 + .5 * .8 + .1 * .5) * exp(.5 * (1 - .2)) + .001 = 1.26906, and its root
    assert priority(TERMS, 1.0, 0.2, PriorityConfig()) == pytest.approx(1.12653, abs=1e-5)


def test_a_base_alone_is_uniform_replay():
    uniform = PriorityConfig(base=1.0, td=0.0, rho=0.0, entropy=0.0, surprise=0.0)
    weights = {priority(TERMS, r, v, uniform) for r in (0.0, 1.0) for v in (0.1, 0.9)}
    assert len(weights) == 1


def test_filtered_imitation_takes_successes_and_the_unexpected_more_often():
    config = presets.filtered_bc(configs.quick()).priority
    assert priority(TERMS, 0.0, 0.1, config) == 0
    rare, usual = priority(TERMS, 1.0, 0.1, config), priority(TERMS, 1.0, 0.95, config)
    assert rare / usual == pytest.approx(np.exp(3 * 0.85), rel=0.01)


def test_a_priority_that_is_no_number_is_an_error():
    with pytest.raises(ValueError, match="not finite"):
        priority(EpisodeTerms(np.nan, 0.0, 0.0), 1.0, 0.5, PriorityConfig())


def test_terms_are_divided_by_their_running_means():
    means = RunningMeans(decay=0.5)
    assert means.normalise(TERMS) == TERMS
    means.update(EpisodeTerms(2.0, 1.0, 0.0))
    means.update(EpisodeTerms(4.0, 1.0, 0.0))
    assert means.normalise(EpisodeTerms(3.0, 0.5, 0.0)) == (1.0, 0.5, 0.0)


def test_importance_undoes_the_sampling():
    weights = np.array([1.0, 4.0, 2.0])
    np.testing.assert_allclose(importance(weights, 1.0), [1, 1 / 4, 1 / 2])
    np.testing.assert_allclose(importance(weights, 0.5), [1, 1 / 2, 0.5**0.5])
    np.testing.assert_allclose(importance(weights, 0.0), 1)
    with pytest.raises(ValueError, match="weight 0"):
        importance(np.array([0.0, 1.0]), 0.5)
