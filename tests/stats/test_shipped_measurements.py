"""The databases under docs/data: real measurements, foretold from their smaller sizes."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from orchestrator.analysis.leave_out import leave_largest_out
from orchestrator.analysis.sides import read_only
from orchestrator.store.queries_stats import measured_jobs

DATABASES = sorted((Path(__file__).parents[2] / "docs" / "data").glob("*.db"))


def test_the_largest_measured_size_is_foretold_within_a_tenth() -> None:
    errors = []
    for path in DATABASES:
        with read_only(str(path)) as store:
            errors += [found.error_share for found in leave_largest_out(measured_jobs(store))]
    if not errors:
        pytest.skip("docs/data holds no database with four sizes of a setting")
    assert median(errors) <= 0.10
