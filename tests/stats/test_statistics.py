"""The pieces against scipy, enumeration and known values."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis import statistics
from orchestrator.analysis.fit import MINIMUM_SIZES, fit, points_of
from orchestrator.analysis.multiplicity import Unit, adjusted_p

samples = st.lists(st.floats(0.01, 100, allow_nan=False), min_size=4, max_size=6, unique=True)


@given(samples, samples)
@settings(deadline=None, max_examples=50)
def test_mann_whitney_without_ties_is_scipys_exact(a: list[float], b: list[float]) -> None:
    if set(a) & set(b):
        return
    expected = stats.mannwhitneyu(a, b, method="exact").pvalue
    assert statistics.mann_whitney_p(np.array(a), np.array(b)) == pytest.approx(expected)


def test_mann_whitney_of_four_apart_is_two_in_seventy() -> None:
    p = statistics.mann_whitney_p(np.arange(1.0, 5.0), np.arange(11.0, 15.0))
    assert p == pytest.approx(2 / 70)


def test_mann_whitney_with_ties_counts_the_deals() -> None:
    a, b = np.array([1.0, 1.0, 2.0, 3.0]), np.array([3.0, 4.0, 4.0, 5.0])
    ranks = stats.rankdata([*a, *b])
    sums = [sum(deal) for deal in combinations(ranks, 4)]
    extreme = [total for total in sums if abs(total - 18) >= abs(ranks[:4].sum() - 18)]
    assert statistics.mann_whitney_p(a, b) == pytest.approx(len(extreme) / 70)


def test_equal_constants_have_p_one() -> None:
    assert statistics.mann_whitney_p(np.ones(5), np.ones(4)) == 1.0


def test_effect_sizes_have_their_textbook_values() -> None:
    a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 4.0, 6.0, 8.0])
    assert statistics.cliffs_delta(a, a) == 0.0
    assert statistics.cliffs_delta(a, b + 10) == 1.0
    assert statistics.hodges_lehmann_ratio(a, a * 1.1) == pytest.approx(1.1)
    assert statistics.cliffs_delta(a, b) == pytest.approx((12 - 2) / 16)


def test_the_interval_of_four_jobs_spans_nearly_their_extremes() -> None:
    a = np.array([1.0, 1.01, 1.02, 1.03])
    low, high = statistics.median_ratio_interval(a, a * 1.1, seed=1)
    assert low < 1.1 * 1.0 / 1.02
    assert high > 1.1 * 1.02 / 1.0


@given(st.integers(1, 5), st.integers(1, 5))
def test_all_splits_are_each_deal_once_the_observed_first(size_a: int, size_b: int) -> None:
    splits = statistics.all_splits(size_a, size_b)
    assert len(splits) == math.comb(size_a + size_b, size_a)
    assert splits[0].tolist() == list(range(size_a + size_b))
    assert len({frozenset(row[:size_a]) for row in splits.tolist()}) == len(splits)


def test_one_cell_of_four_apart_keeps_the_p_of_its_exact_test() -> None:
    logs = np.array([[0.0, 0.01, 0.02, 0.03, 1.0, 1.01, 1.02, 1.03]])
    assert adjusted_p([Unit(logs, 4)], seed=1)[0, 0] == pytest.approx(2 / 70, abs=0.012)


def test_a_metric_that_is_missing_in_one_cell_spoils_no_other() -> None:
    rng = np.random.default_rng(3)
    cells = [Unit(rng.normal(0, 0.02, (2, 10)), 5) for _ in range(4)]
    cells[1].logs[0] = np.nan
    p = adjusted_p(cells, seed=1)
    assert np.isnan(p[1, 0])
    assert np.isfinite(np.delete(p.ravel(), 2)).all()


def test_nothing_to_compare_is_an_empty_table() -> None:
    assert adjusted_p([], seed=0).size == 0


CURVES = {
    "copy": lambda b: b / 50e9,
    "fixed + copy": lambda b: 0.2 + b / 50e9,
    "longer of collection and copy": lambda b: max(0.2, b / 50e9),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_without_noise_is_found_again(name: str) -> None:
    sizes = [2e9, 4e9, 8e9, 12e9, 17e9, 34e9]
    found = fit(points_of(sizes, [CURVES[name](size) for size in sizes]))
    for size in (3e9, 10e9, 20e9, 60e9):
        assert found.seconds(size) == pytest.approx(CURVES[name](size), rel=0.03)


def test_one_wild_size_does_not_carry_the_curve_away() -> None:
    sizes = [2e9, 4e9, 8e9, 12e9, 17e9, 25e9, 34e9]
    seconds = [0.2 + size / 50e9 for size in sizes]
    seconds[3] *= 2
    assert fit(points_of(sizes, seconds)).seconds(50e9) == pytest.approx(1.2, rel=0.08)


def test_copies_that_all_hide_behind_the_collection_still_tell_of_the_link() -> None:
    sizes = [2e9, 4e9, 6e9, 8e9]
    hidden = fit(points_of(sizes, [0.222, 0.221, 0.223, 0.222]), 55e9)
    assert hidden.seconds(34e9) == pytest.approx(34 / 55, rel=0.05)


@given(
    st.lists(st.floats(1e8, 1e11), min_size=MINIMUM_SIZES, max_size=8, unique=True),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_no_curve_foretells_a_negative_or_falling_time(sizes: list[float], data: st.DataObject) -> None:
    seconds = data.draw(st.lists(st.floats(1e-3, 100), min_size=len(sizes), max_size=len(sizes)))
    points = points_of(sizes, seconds)
    if len(points) < MINIMUM_SIZES:
        return
    found = fit(points, 50e9)
    foretold = [found.seconds(size) for size in (1e7, 1e9, 1e10, 1e12)]
    assert foretold[0] >= 0
    assert foretold == sorted(foretold)
    assert found.half_width_log() > 0
