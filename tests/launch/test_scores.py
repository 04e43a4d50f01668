"""Intervals, tests and kappa against published and hand-made numbers."""

import itertools
import math
import random

import pytest

from launch import scores


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 10, 0.0, 0.2775),  # z^2 / (n + z^2) = 3.8415 / 13.8415
        (10, 10, 0.7225, 1.0),
        # Newcombe, "Two-sided confidence intervals for the single proportion" (1998), table I
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval(successes, n, low, high):
    assert scores.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_a_bootstrap_over_clusters_is_wider_where_they_are_alike():
    rng = random.Random(0)
    alike = [[float(rng.random() < 0.5)] * 10 for _ in range(30)]
    mixed = [[float(rng.random() < 0.5) for _ in range(10)] for _ in range(30)]
    wide, narrow = (scores.cluster_bootstrap(clusters) for clusters in (alike, mixed))
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])
    # of singles: about 1.96 standard errors to each side
    low, high = scores.cluster_bootstrap([[1.0]] * 60 + [[0.0]] * 40)
    error = 1.96 * math.sqrt(0.6 * 0.4 / 100)
    assert (low, high) == pytest.approx((0.6 - error, 0.6 + error), abs=0.02)
    assert scores.cluster_bootstrap([[1.0], []]) == (1.0, 1.0)
    assert all(map(math.isnan, scores.cluster_bootstrap([[]])))
    assert scores.cluster_bootstrap(alike) == wide  # the same twice


@pytest.mark.parametrize(("n", "successes", "k"), [(5, 2, 1), (5, 2, 3), (4, 0, 2), (4, 4, 2)])
def test_pass_at_k_is_the_share_of_all_draws(n, successes, k):
    tries = [True] * successes + [False] * (n - successes)
    draws = list(itertools.combinations(tries, k))
    assert scores.pass_at_k(successes, n, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert scores.pass_all_k(successes, n, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        (0, 0, 1.0),
        (1, 1, 1.0),
        (0, 5, 2 / 32),
        (2, 8, 2 * (1 + 10 + 45) / 1024),
        (8, 2, 112 / 1024),
    ],
)
def test_mcnemar_s_exact_test(a, b, p):
    assert scores.mcnemar(a, b) == pytest.approx(p)


def test_kappa():
    # Cohen's own worked kind: po = .7, pe = .5, kappa = .4
    table = {("y", "y"): 20, ("y", "n"): 5, ("n", "y"): 10, ("n", "n"): 15}
    assert scores.cohen_kappa(table) == pytest.approx(0.4)
    assert scores.cohen_kappa({("y", "y"): 3, ("n", "n"): 4}) == 1
    assert math.isnan(scores.cohen_kappa({("y", "y"): 3}))
    assert math.isnan(scores.cohen_kappa({}))
