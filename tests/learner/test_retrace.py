"""Retrace against the paper's double sum, the released code's numbers, rlax and hand cases."""

import json
import pathlib

import jax
import numpy as np
import pytest

from learner.retrace import corrections, off_policy_returns

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "retrace.json").read_text())


def double_sum(r, discount, rho, v, v_tp1, lambda_, c_bar=1.0):
    """A_t as the paper writes it, one term at a time, in float64."""
    length = len(r)
    advantages = np.zeros(length)
    for t in range(length):
        for k in range(t, length):
            weight = 1.0
            for i in range(t + 1, k + 1):
                weight *= discount[i - 1] * lambda_ * min(c_bar, rho[i])
            advantages[t] += weight * (r[k] + discount[k] * v_tp1[k] - v[k])
    return advantages


def random_case(seed, length):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=length),
        rng.choice([0.0, 0.9, 1.0], size=length, p=[0.2, 0.4, 0.4]),
        np.exp(rng.normal(size=length)),
        rng.normal(size=length),
        rng.normal(size=length),
    )


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("length", [1, 2, 13])
def test_agrees_with_the_double_sum(length, lambda_):
    case = random_case(length, length)
    returns = off_policy_returns(*case, lambda_=lambda_)
    np.testing.assert_allclose(returns.advantages, double_sum(*case, lambda_), rtol=2e-5, atol=2e-5)


def golden_columns():
    for case in GOLDEN:
        rho = np.exp(np.array(case["target_log_probs"]) - np.array(case["behaviour_log_probs"]))
        v = np.array(case["values"])
        v_tp1 = np.concatenate([v[1:], np.array(case["bootstrap_value"])[None]])
        inputs = [np.array(case["rewards"]), np.array(case["discounts"]), rho, v, v_tp1]
        for b in range(case["B"]):
            yield case, b, [x[:, b] for x in inputs]


def test_agrees_with_the_papers_numbers():
    for case, b, column in golden_columns():
        for lambda_, expected in case["paper_delta_by_lambda"].items():
            got = off_policy_returns(*column, lambda_=float(lambda_)).advantages
            np.testing.assert_allclose(got, np.array(expected)[:, b], rtol=1e-4, atol=1e-5)


def test_lambda_one_gives_the_released_codes_value_targets():
    for case, b, column in golden_columns():
        got = off_policy_returns(*column, lambda_=1.0).targets
        np.testing.assert_allclose(
            got, np.array(case["released_code"]["vs"])[:, b], rtol=1e-4, atol=1e-5
        )


def test_lambda_one_gives_the_released_codes_policy_gradient_advantages():
    for case, b, column in golden_columns():
        got = off_policy_returns(*column, lambda_=1.0).advantages * np.minimum(1.0, column[2])
        np.testing.assert_allclose(
            got, np.array(case["released_code"]["pg_advantages"])[:, b], rtol=1e-4, atol=1e-5
        )


def chained_case(seed=7, length=9):
    """A random case in which the value that followed is the next state's."""
    r, discount, rho, v, v_tp1 = random_case(seed, length)
    v_tp1[:-1] = v[1:]
    return r, discount, rho, v, v_tp1


@pytest.mark.parametrize("rho_bar", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
def test_without_a_first_weight_it_is_rlaxs_vtrace(lambda_, rho_bar):
    rlax = pytest.importorskip("rlax")
    r, discount, rho, v, v_tp1 = chained_case()
    returns = off_policy_returns(r, discount, rho, v, v_tp1, lambda_=lambda_, rho_bar=rho_bar)
    errors = rlax.vtrace(v, v_tp1, r, discount, rho, lambda_=lambda_, clip_rho_threshold=rho_bar)
    np.testing.assert_allclose(returns.targets - v, errors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("c_bar", [0.5, 1.0, 3.0])
def test_with_first_weight_one_it_is_rlaxs_retrace(c_bar):
    rlax = pytest.importorskip("rlax")
    r, discount, rho, v, v_tp1 = chained_case()
    c = 0.8 * np.minimum(c_bar, rho)
    # Retrace of action values, given the state's value for each of its actions.
    returns = rlax.general_off_policy_returns_from_q_and_v(v[1:], v_tp1, r, discount, c[1:])
    got = off_policy_returns(r, discount, rho, v, v_tp1, lambda_=0.8, c_bar=c_bar).advantages
    np.testing.assert_allclose(got, returns - v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lambda_", [0.0, 0.9, 1.0])
def test_on_policy_it_is_td_lambda_and_gae(lambda_):
    rlax = pytest.importorskip("rlax")
    r, discount, _, v, v_tp1 = chained_case()
    returns = off_policy_returns(r, discount, np.ones(9), v, v_tp1, lambda_=lambda_)
    td_lambda = rlax.lambda_returns(r, discount, v_tp1, lambda_)
    gae = rlax.truncated_generalized_advantage_estimation(
        r, discount, lambda_, np.append(v, v_tp1[-1])
    )
    np.testing.assert_allclose(returns.advantages, gae, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(v + returns.advantages, td_lambda, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(returns.targets, td_lambda, rtol=1e-4, atol=1e-5)


def test_lambda_zero_is_the_one_step_error():
    r, discount, rho, v, v_tp1 = chained_case()
    returns = off_policy_returns(r, discount, rho, v, v_tp1, lambda_=0.0)
    td = r + discount * v_tp1 - v
    np.testing.assert_allclose(returns.advantages, td, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(returns.targets, v + np.minimum(1.0, rho) * td, rtol=1e-5, atol=1e-6)


def test_the_first_weight_scales_the_whole_sum():
    r, discount, rho, v, v_tp1 = chained_case()
    once, thrice = (
        corrections(r + discount * v_tp1 - v, discount, rho, lambda_=0.9, first_weight=weight)
        for weight in (1.0, 3.0)
    )
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-5)


def test_padding_changes_nothing_and_gets_nothing():
    case = chained_case()
    case[1][-1] = 0.0
    padded = [np.concatenate([column, np.zeros(4)]) for column in case]
    padded[3][9:], padded[4][9:] = 5.0, 5.0  # a critic says something of padding too
    before, after = off_policy_returns(*case), off_policy_returns(*padded)
    np.testing.assert_array_equal(after.advantages[:9], before.advantages)
    np.testing.assert_array_equal(after.targets[:9], before.targets)
    np.testing.assert_array_equal(after.targets[9:], padded[3][9:])  # rho 0: stays what it was


def test_a_termination_takes_no_value_and_a_truncation_does():
    # The last action at V = .5 was followed by no reward, and a state worth .8.
    ended = off_policy_returns(*(np.array([x]) for x in (0.0, 0.0, 1.0, 0.5, 0.8)))
    cut_off = off_policy_returns(*(np.array([x]) for x in (0.0, 1.0, 1.0, 0.5, 0.8)))
    np.testing.assert_allclose(ended.advantages, [-0.5], rtol=1e-6)  # 0 - .5
    np.testing.assert_allclose(cut_off.advantages, [0.3], rtol=1e-6)  # 0 + .8 - .5
    np.testing.assert_allclose((ended.targets, cut_off.targets), [[0.0], [0.8]], atol=1e-7)


def test_one_step_by_hand():
    # r + discount * v' - v = 1 + 0.5 * 4 - 2 = 1; target = 2 + min(1, 0.5) * 1 = 2.5
    returns = off_policy_returns(*(np.array([x]) for x in (1.0, 0.5, 0.5, 2.0, 4.0)))
    assert returns.advantages[0] == 1.0
    assert returns.targets[0] == 2.5


def test_two_steps_by_hand():
    # td = [0 + 1 * 0.5 - 0.25, 1 - 0.5] = [0.25, 0.5]; c_1 = 0.95 * min(1, 2) = 0.95
    # A = [0.25 + 0.95 * 0.5, 0.5] = [0.725, 0.5]
    case = [0.0, 1.0], [1.0, 0.0], [1.0, 2.0], [0.25, 0.5], [0.5, 9.0]
    returns = off_policy_returns(*map(np.array, case))
    np.testing.assert_allclose(returns.advantages, [0.725, 0.5], rtol=1e-6)


def test_nothing_leaks_back_over_an_episode_end():
    r, discount, rho, v, v_tp1 = random_case(3, 8)
    discount[3] = 0.0
    before = off_policy_returns(r, discount, rho, v, v_tp1).advantages[:4]
    r[4:] += 100.0
    v_tp1[3] = 1e6
    after = off_policy_returns(r, discount, rho, v, v_tp1).advantages[:4]
    np.testing.assert_array_equal(before, after)


def test_a_truncated_episodes_last_row_lends_its_value_and_no_more():
    # Rows: one step, then the row to bootstrap from (its trace stopped by rho 0).
    r, discount = np.array([0.0, 5.0]), np.array([1.0, 0.0])
    rho, v = np.array([1.0, 0.0]), np.array([0.25, 0.75])
    returns = off_policy_returns(r, discount, rho, v, np.array([0.75, 0.0]))
    assert returns.advantages[0] == 0.5  # 0 + V(s_H) - V(s)


def test_batches_by_vmap():
    cases = [random_case(seed, 5) for seed in range(3)]
    batched = jax.vmap(off_policy_returns)(*(np.stack(x) for x in zip(*cases, strict=True)))
    for b, case in enumerate(cases):
        np.testing.assert_allclose(
            batched.advantages[b], off_policy_returns(*case).advantages, rtol=1e-6
        )
