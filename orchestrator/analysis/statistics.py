"""What do two small samples of job medians say: test, effect size, interval of the ratio?"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Sample = NDArray[np.float64]

BOOTSTRAP_DRAWS = 2000
EXACT_LIMIT = 20
"""Up to this size of the smaller side Mann–Whitney is exact where there are no ties."""


def mann_whitney_p(a: Sample, b: Sample) -> float:
    """Two-sided p of Mann–Whitney: exact without ties, by exact permutation or normal with them."""
    from scipy import stats

    if np.all(a == a[0]) and np.all(b == a[0]):
        return 1.0
    tied = len(np.unique(np.concatenate([a, b]))) < len(a) + len(b)
    if tied and math.comb(len(a) + len(b), len(a)) <= 20_000:
        return _exact_p_with_ties(a, b)
    exact = not tied and min(len(a), len(b)) <= EXACT_LIMIT
    result = stats.mannwhitneyu(a, b, alternative="two-sided", method="exact" if exact else "asymptotic")
    return float(result.pvalue)


def _exact_p_with_ties(a: Sample, b: Sample) -> float:
    """Exact permutation p of the rank sum; scipy's own exact method ignores ties."""
    from scipy import stats

    ranks = np.asarray(stats.rankdata(np.concatenate([a, b])))
    sums = ranks[all_splits(len(a), len(b))[:, : len(a)]].sum(axis=1)
    centre = ranks.mean() * len(a)
    return float(np.mean(np.abs(sums - centre) >= abs(ranks[: len(a)].sum() - centre) - 1e-9))


def all_splits(size_a: int, size_b: int) -> NDArray[np.intp]:
    """Every way to deal ``size_a + size_b`` places to two sides, a row each: side A first."""
    from itertools import combinations

    total = size_a + size_b
    rows = []
    for chosen in combinations(range(total), size_a):
        taken = set(chosen)
        rows.append([*chosen, *(place for place in range(total) if place not in taken)])
    return np.array(rows, dtype=np.intp)


def cliffs_delta(a: Sample, b: Sample) -> float:
    """P(b > a) − P(b < a) over all pairs: −1 … 1, 0 = no difference."""
    difference = np.sign(b[None, :] - a[:, None])
    return float(difference.mean())


def hodges_lehmann_ratio(a: Sample, b: Sample) -> float:
    """Median over all pairs of b / a: the Hodges–Lehmann shift of the logarithms."""
    return float(np.exp(np.median(np.log(b)[None, :] - np.log(a)[:, None])))


def median_ratio_interval(
    a: Sample, b: Sample, *, seed: int, level: float = 0.95, draws: int = BOOTSTRAP_DRAWS
) -> tuple[float, float]:
    """Bootstrap interval of median(b) / median(a).

    The percentiles are those of Student instead of the normal (after Hesterberg 2015,
    doi 10.1080/00031305.2015.1089789): the plain percentile interval of four jobs covers 91 %, this one
    95 %; from five jobs on it covers 97 %.
    """
    from scipy import stats

    rng = np.random.default_rng(seed)
    medians_a = np.median(a[rng.integers(0, len(a), (draws, len(a)))], axis=1)
    medians_b = np.median(b[rng.integers(0, len(b), (draws, len(b)))], axis=1)
    tail = float(stats.norm.sf(stats.t.ppf((1 + level) / 2, len(a) + len(b) - 2)))
    low, high = np.quantile(medians_b / medians_a, [tail, 1 - tail])
    return float(low), float(high)
