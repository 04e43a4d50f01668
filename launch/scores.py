"""Shares, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Z_95 = 1.959964
DRAWS = 2000


def wilson(successes: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """Returns Wilson's score interval of a share at 95 % (Wilson 1927); (0, 1) for no trials."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def cluster_bootstrap(
    clusters: Sequence[Sequence[float]], seed: int = 0, draws: int = DRAWS
) -> tuple[float, float]:
    """Returns the 95 % percentile interval of the mean of all values, by drawing whole clusters.

    Episodes of one task are alike, so they are drawn together (Field and Welsh 2007).

    Args:
      clusters: The values of each, such as a task's successes; empty ones are left out.
      seed: Of the draws.
      draws: How many.

    Returns:
      (low, high); (nan, nan) without values.
    """
    sizes = np.array([len(cluster) for cluster in clusters if cluster], float)
    sums = np.array([sum(cluster) for cluster in clusters if cluster], float)
    if not len(sizes):
        return math.nan, math.nan
    drawn = np.random.default_rng(seed).integers(len(sizes), size=(draws, len(sizes)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def pass_at_k(successes: int, n: int, k: int) -> float:
    """Returns the chance that one of k of n tries is a success (Chen et al. 2021, equation 1)."""
    return 1 - math.comb(n - successes, k) / math.comb(n, k)


def pass_all_k(successes: int, n: int, k: int) -> float:
    """Returns the chance that all k of n tries are (Yao et al. 2024, tau-bench)."""
    return math.comb(successes, k) / math.comb(n, k)


def mcnemar(only_a: int, only_b: int) -> float:
    """Returns the two-sided exact p-value of McNemar's test (1947).

    Args:
      only_a: Pairs where a alone succeeded.
      only_b: Pairs where b alone did.
    """
    n, least = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(least + 1)) / 2**n
    return min(1.0, 2 * tail)


def cohen_kappa(table: Mapping[tuple[str, str], int]) -> float:
    """Returns the agreement beyond chance (Cohen 1960); nan if chance alone explains all.

    Args:
      table: Counts by (one rater's word, the other's word).
    """
    total = sum(table.values())
    if not total:
        return math.nan
    words = {word for pair in table for word in pair}
    agreed = sum(table.get((word, word), 0) for word in words) / total
    chance = sum(
        sum(count for (a, _), count in table.items() if a == word)
        * sum(count for (_, b), count in table.items() if b == word)
        for word in words
    ) / (total * total)
    return math.nan if chance == 1 else (agreed - chance) / (1 - chance)
