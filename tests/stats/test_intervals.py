"""How often does the interval of a prediction hold the median of a job that was not there?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.fit import fit, points_of

GB = 1e9
CURVES = {
    # fixed seconds, bytes a second, seconds of the collection, the link where the copy may reach it
    "a collection before the copies": (0.2, 50 * GB, 0.0, 55 * GB),
    "a collection that hides behind them": (0.0, 50 * GB, 0.2, 55 * GB),
    "pageable": (0.1, 5 * GB, 0.0, None),
}
SIZES = ([2, 4, 8, 17, 34], [2, 8, 34], [1, 2, 4, 8])
DRAWS = 150


def coverage(curve: str, sizes_gb: list[int], jobs: int, scatter: float) -> float:
    """Share of draws in which a new job of a size in between falls into the interval."""
    fixed_s, bytes_per_s, floor_s, link = CURVES[curve]
    random = np.random.default_rng(7)

    def measured(size: float) -> float:
        return max(floor_s, fixed_s + size / bytes_per_s) * math.exp(random.normal(0.0, scatter))

    asked, held = 0.7 * sizes_gb[-1] * GB, 0
    sizes = [size * GB for size in sizes_gb for _ in range(jobs)]
    for _ in range(DRAWS):
        found = fit(points_of(sizes, [measured(size) for size in sizes]), link)
        away = math.log(measured(asked) / found.seconds(asked))
        held += abs(away) <= found.half_width_log()
    return held / DRAWS


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("scatter", [0.01, 0.05])
def test_with_three_repeats_a_size_the_interval_holds_19_of_20_new_jobs(curve: str, scatter: float) -> None:
    assert min(coverage(curve, sizes, 3, scatter) for sizes in SIZES) >= 0.95


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("scatter", [0.01, 0.05])
def test_with_one_job_a_size_the_interval_holds_17_of_20_new_jobs(curve: str, scatter: float) -> None:
    assert min(coverage(curve, sizes, 1, scatter) for sizes in SIZES) >= 0.85
