"""The promises of docs/statistics.md on simulated sweeps; benchmarks/compare_power.py is exacter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.compare_power import METRICS, Scenario, error_rates, holm_on_mann_whitney, simulate
from orchestrator.analysis.compare import CompareOptions, compare
from orchestrator.analysis.multiplicity import Unit, adjusted_p
from orchestrator.analysis.verdicts import ALPHA


def most_alarms(sweeps: int) -> float:
    """Share of sweeps that a true rate of 5 % exceeds once in a thousand times."""
    return float(stats.binom.ppf(0.999, sweeps, ALPHA)) / sweeps


@pytest.mark.parametrize(
    ("cells", "repeats", "changed", "sweeps"), [(1, 5, 0, 1000), (6, 5, 0, 600), (6, 5, 3, 400)]
)
def test_unchanged_cells_raise_few_alarms_over_a_whole_sweep(
    cells: int, repeats: int, changed: int, sweeps: int
) -> None:
    rng = np.random.default_rng(2)
    shape = (cells, len(METRICS), 2 * repeats)
    alarms = 0
    for number in range(sweeps):
        jobs = rng.normal(0, 0.02, (cells, 1, 2 * repeats)) * rng.lognormal(0, 0.4, (cells, 1, 1))
        slow = np.where(rng.random((cells, 1, 2 * repeats)) < 0.05, 0.2, 0.0)
        logs = jobs + slow + rng.normal(0, 0.02, shape)
        logs[:changed, :, repeats:] += 0.1
        p = adjusted_p([Unit(cell, repeats) for cell in logs], seed=number, deals=500)
        alarms += bool((p[changed:] <= ALPHA).any())
    assert alarms / sweeps <= most_alarms(sweeps)


def test_the_whole_command_raises_few_alarms_and_its_intervals_cover() -> None:
    sweeps = 40
    rates = error_rates(Scenario(cells=6, repeats=5), sweeps, seed=2)
    assert rates.false_alarm <= most_alarms(sweeps)
    assert rates.covered >= 0.95


def test_a_tenth_slower_with_ten_repeats_is_found_and_never_called_same() -> None:
    rates = error_rates(Scenario(cells=12, repeats=10, changed=4), 8, seed=4)
    assert rates.detected >= 0.7
    assert rates.wrongly_same == 0.0


def test_four_repeats_in_many_cells_find_what_holm_cannot() -> None:
    scenario = Scenario(
        cells=24, repeats=4, changed=3, between_share=0.005, within_share=0.005, outlier_share=0
    )
    found = compare(*simulate(scenario, np.random.default_rng(5)), CompareOptions(METRICS))
    assert holm_on_mann_whitney(found) == 0
    assert {int(c.cell[3:], 16) for c in found.changes if c.verdict == "worse"} == {0, 1, 2}


def test_slow_jobs_on_both_sides_alike_are_no_change() -> None:
    # Heavy tails on one cell only: its scatter must not be taken from the quiet ones.
    rng = np.random.default_rng(6)
    alarms, sweeps = 0, 300
    for number in range(sweeps):
        quiet = [Unit(rng.normal(0, 0.01, (1, 10)), 5) for _ in range(6)]
        noisy = Unit(rng.standard_t(2, (1, 10)) * 0.1, 5)
        alarms += bool((adjusted_p([*quiet, noisy], seed=number, deals=800) <= ALPHA).any())
    assert alarms / sweeps <= most_alarms(sweeps)
