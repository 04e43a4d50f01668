"""Advantages of the published algorithms, by hand on one episode of three steps."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from learner.advantages import KINDS, RELEASED_OFFSET, advantages
from learner.packing import pack
from learner.replay import Replay
from tests.episodes import episode

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "retrace.json").read_text())
VALUES = np.array([0.2, 0.5, 0.6], np.float32)
FOLLOWING = np.array([0.5, 0.6, 0.0], np.float32)


def found(kind, success=True, rho=(1.0, 1.0, 1.0), gamma=1.0, lambda_=0.5, penalties=(0, 0, 0)):
    replay = Replay(1, np.random.default_rng(0))
    replay.insert(episode(3, success=success))
    rows = pack(replay.sample(3), 3, horizon=10)
    given = jnp.array([9.0, 8.0, 7.0])
    rho, penalties = jnp.array(rho), jnp.array(penalties, jnp.float32)
    return advantages(
        kind, rows, given, rho, VALUES, FOLLOWING, gamma=gamma, lambda_=lambda_, penalties=penalties
    )


def test_retrace_is_passed_on_and_filtered_is_the_outcome():
    assert found("retrace").tolist() == [9, 8, 7]
    assert found("filtered").tolist() == [1, 1, 1]
    assert found("filtered", success=False).tolist() == [0, 0, 0]


def test_the_return_less_the_value():
    np.testing.assert_allclose(
        found("return", gamma=0.5), [0.25 - 0.2, 0.5 - 0.5, 1 - 0.6], atol=1e-6
    )


def test_digirl_mixes_the_outcome_and_one_step_by_the_distance_to_the_end():
    one_step = np.array([0.5 - 0.2, 0.6 - 0.5, 1 - 0.6])
    done = np.array([0.25, 0.5, 1.0])
    np.testing.assert_allclose(found("digirl"), done + (1 - done) * one_step, atol=1e-6)
    np.testing.assert_allclose(found("digirl", success=False), [0.3, 0.1, -0.6], atol=1e-6)


def test_released_is_v_trace_of_shaped_rewards():
    gamma, rho, penalties = 0.5, (2.0, 0.5, 1.0), (0.0, 1.0, 0.4)
    reward = np.array([0.25, 0.5, 2.0]) - RELEASED_OFFSET - np.array(penalties)
    discount, clipped = np.array([0.5, 0.5, 0.0]), np.minimum(rho, 1)
    expected, following = np.zeros(3), 0.0
    for t in (2, 1, 0):  # vs_t - V_t = min(1, rho_t) (delta_t + discount_t (vs_t+1 - V_t+1))
        delta = reward[t] + discount[t] * FOLLOWING[t] - VALUES[t]
        expected[t] = following = clipped[t] * (delta + discount[t] * following)
    np.testing.assert_allclose(
        found("released", rho=rho, gamma=gamma, penalties=penalties), expected, atol=1e-6
    )


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"T{case['T']}")
def test_the_released_code_s_advantages(case):
    """Its numbers, with the shaping taken out of the rewards beforehand."""
    from learner.retrace import off_policy_returns

    for b in range(case["B"]):
        column = {name: np.array(case[name])[:, b] for name in ("rewards", "discounts", "values")}
        log_rho = (np.array(case["target_log_probs"]) - np.array(case["behaviour_log_probs"]))[:, b]
        following = np.append(column["values"][1:], case["bootstrap_value"][b])
        found = off_policy_returns(
            column["rewards"], column["discounts"], np.exp(log_rho), column["values"], following,
            lambda_=1.0,
        )  # fmt: skip
        expected = np.array(case["released_code"]["pg_advantages"])[:, b]
        np.testing.assert_allclose(found.targets - column["values"], expected, rtol=1e-4, atol=1e-5)


def test_every_kind_is_known():
    assert all(np.isfinite(found(kind)).all() for kind in KINDS)
