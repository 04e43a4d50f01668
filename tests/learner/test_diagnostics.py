"""Diagnostics against NumPy, padding left out."""

import jax.numpy as jnp
import numpy as np
import pytest

from learner import diagnostics
from learner.packing import pack
from learner.replay import Replay
from tests.episodes import episode


def rows(length, size):
    replay = Replay(1, np.random.default_rng(0))
    replay.insert(episode(length))
    return pack(replay.sample(length), size, horizon=50)


def test_ratios():
    rho = np.random.default_rng(0).lognormal(0, 1, 50).astype(np.float32)
    rho[40:] = 1e6  # padding
    found = diagnostics.off_policy(jnp.array(rho), 1.0, rows(40, 50))
    real = rho[:40]
    assert found["offpolicy/rho_mean"] == pytest.approx(np.minimum(real, 1).mean(), rel=1e-5)
    assert found["offpolicy/rho_p95"] == np.sort(real)[38]
    assert found["offpolicy/truncated_share"] == pytest.approx((real > 1).mean())
    ess = real.sum() ** 2 / np.square(real).sum() / 40
    assert found["offpolicy/ess"] == pytest.approx(ess, rel=1e-5)


def test_calibration_is_the_gap_of_each_bin_weighted_by_its_steps():
    probabilities = jnp.array([0.05, 0.05, 0.95, 0.95, 1.0])
    outcomes = jnp.array([0.0, 1.0, 1.0, 1.0, 0.0])
    weights = jnp.array([1.0, 1.0, 1.0, 1.0, 0.0])
    expected = (abs(2 * 0.05 - 1) + abs(2 * 0.95 - 2)) / 4
    error = diagnostics.calibration_error(probabilities, outcomes, weights)
    assert error == pytest.approx(expected, abs=1e-6)


def test_the_share_of_padding():
    found = diagnostics.values(jnp.zeros(50), jnp.zeros(50), jnp.zeros(50), rows(40, 50))
    assert found["batch/padding_share"] == pytest.approx(0.2)
    assert found["value/outcome_mean"] == pytest.approx(1.0)
