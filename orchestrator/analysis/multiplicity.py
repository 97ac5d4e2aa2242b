"""Which of many cells changed, with at most one false alarm in twenty whole sweeps?

Step-down max-T of Westfall and Young (1993, algorithm 2.8): the jobs of a cell are dealt to the two
sides anew, all cells together, and a cell's statistic is held against the largest statistic over the
cells. Unlike Holm on Mann–Whitney it keeps its power at four repeats a side, where no exact rank test
can give less than p = 2/70: only a deal that happens to rebuild the observed split of a changed cell
reaches that cell's statistic.

The statistic is a moderated Student t of the logarithms, in trimmed means: the scatter of a cell is
shrunk towards that of all cells (Smyth 2004, doi 10.2202/1544-6115.1027).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.statistics import Sample, all_splits

DEALS = 4000
TRIM_SHARE = 0.1
ENUMERATE_UP_TO = 1000
_TINY = 1e-9  # Scatter below a billionth is rounding; it keeps an exact metric's statistic finite.

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unit:
    """One cell: logarithms of its metrics, a row a metric, jobs of side A first."""

    logs: Table
    size_a: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """What all cells say about the variance of one metric: a scaled inverse chi-square prior."""

    variance: float
    degrees: float


def adjusted_p(units: Sequence[Unit], *, seed: int, deals: int = DEALS) -> Table:
    """Family-wise p over units × metrics, shape (units, metrics); NaN where a log is not finite."""
    if not units:
        return np.empty((0, 0))
    priors = _priors(units)
    rng = np.random.default_rng(seed)
    splits: dict[tuple[int, int], NDArray[np.intp]] = {}
    observed, dealt = [], []
    for place, unit in enumerate(units):
        shape = (unit.size_a, unit.logs.shape[1] - unit.size_a)
        if shape not in splits:
            splits[shape] = _splits(*shape, rng=rng, deals=deals)
        table = np.array(
            [
                _statistic(row[splits[shape]], unit.size_a, prior)
                for row, prior in zip(unit.logs, priors[place], strict=True)
            ]
        )
        observed.append(table[:, 0])
        # The same deal for all metrics of a job: their dependence is kept.
        dealt.append(table[:, rng.integers(0, table.shape[1], deals)])
    flat = np.concatenate(observed)
    return _step_down(flat, np.concatenate(dealt)).reshape(len(units), -1)


def _splits(size_a: int, size_b: int, *, rng: np.random.Generator, deals: int) -> NDArray[np.intp]:
    """Deals of one shape, the observed one first: all of them if few, else a random choice."""
    if math.comb(size_a + size_b, size_a) <= ENUMERATE_UP_TO:
        return all_splits(size_a, size_b)
    rows = rng.permuted(np.tile(np.arange(size_a + size_b, dtype=np.intp), (deals, 1)), axis=1)
    rows[0] = np.arange(size_a + size_b)
    return rows


def _step_down(observed: Sample, dealt: Table) -> Sample:
    """Adjusted p of each statistic: share of deals whose maximum over it and all smaller reaches it."""
    p = np.full(len(observed), np.nan)
    known = np.flatnonzero(np.isfinite(observed))
    order = known[np.argsort(observed[known])]
    running = np.zeros(dealt.shape[1])
    for index in order:
        np.maximum(running, dealt[index], out=running)
        reached = np.count_nonzero(running >= observed[index] * (1 - 1e-12))
        p[index] = (1 + reached) / (1 + dealt.shape[1])
    largest = 0.0
    for index in order[::-1]:
        largest = max(largest, p[index])
        p[index] = largest
    return p


def _statistic(logs: Table, size_a: int, prior: Scatter) -> Sample:
    """|moderated t| of each row of logs."""
    mean_a, variance_a, kept_a = _trimmed(logs[:, :size_a])
    mean_b, variance_b, kept_b = _trimmed(logs[:, size_a:])
    degrees = kept_a + kept_b - 2
    pooled = ((kept_a - 1) * variance_a + (kept_b - 1) * variance_b) / degrees
    if math.isinf(prior.degrees):
        moderated = np.full_like(pooled, prior.variance)
    else:
        moderated = (prior.degrees * prior.variance + degrees * pooled) / (prior.degrees + degrees)
    error = np.sqrt(moderated * (1 / kept_a + 1 / kept_b)) + _TINY
    statistic: Sample = np.abs(mean_b - mean_a) / error
    return statistic


def _trimmed(values: Table) -> tuple[Sample, Sample, int]:
    """Trimmed mean, the winsorised variance scaled to it, and how many values were kept (Yuen 1974)."""
    size = values.shape[1]
    cut = int(TRIM_SHARE * size)
    kept = size - 2 * cut
    if cut == 0:
        return values.mean(axis=1), values.var(axis=1, ddof=1), size
    ordered = np.sort(values, axis=1)
    inner = ordered[:, cut : size - cut]
    winsorised = np.clip(ordered, inner[:, :1], inner[:, -1:])
    variance = winsorised.var(axis=1, ddof=1) * (size - 1) / (kept - 1)
    return inner.mean(axis=1), variance, kept


def _priors(units: Sequence[Unit]) -> list[list[Scatter]]:
    """The prior of each metric of each unit: from the scatter within the sides of the *other* units.

    A prior that saw the unit's own observed split would favour that split over its other deals.
    """
    priors: list[list[Scatter]] = [[] for _ in units]
    for metric in range(units[0].logs.shape[0]):
        variances = np.full(len(units), np.nan)
        degrees = np.zeros(len(units))
        for place, unit in enumerate(units):
            row = unit.logs[metric : metric + 1]
            _, variance_a, kept_a = _trimmed(row[:, : unit.size_a])
            _, variance_b, kept_b = _trimmed(row[:, unit.size_a :])
            degrees[place] = kept_a + kept_b - 2
            pooled = (kept_a - 1) * variance_a[0] + (kept_b - 1) * variance_b[0]
            variances[place] = pooled / degrees[place]
        for place in range(len(units)):
            others = np.isfinite(variances)
            others[place] = False
            priors[place].append(_fit_prior(variances[others], degrees[others]))
    return priors


def _fit_prior(variances: Sample, degrees: Sample) -> Scatter:
    """Smyth's moment fit of the scaled F distribution of the variances."""
    from scipy import special

    positive = variances > _TINY**2
    if np.count_nonzero(positive) < 3:
        return Scatter(0.0, 0.0)
    half = degrees[positive] / 2
    excess = np.log(variances[positive]) - special.digamma(half) + np.log(half)
    spread = float(np.var(excess, ddof=1) - np.mean(special.polygamma(1, half)))
    if spread <= 0:
        return Scatter(float(np.exp(excess.mean())), math.inf)
    prior_half = _inverse_trigamma(spread)
    log_variance = excess.mean() + special.digamma(prior_half) - math.log(prior_half)
    return Scatter(float(np.exp(log_variance)), 2 * prior_half)


def _inverse_trigamma(value: float) -> float:
    """The x > 0 with trigamma(x) = value, by Newton's method on 1 / trigamma."""
    from scipy import special

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x
