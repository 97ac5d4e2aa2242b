"""The figures of a job, against brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.store.figures import (
    Circumstances,
    IterationFigures,
    Probe,
    around,
    figures,
    percentile,
    slope,
)

OK = Circumstances(is_ok=True)
_SECONDS = st.floats(1e-4, 1e3)
_ROWS = st.lists(
    st.builds(
        IterationFigures,
        rank=st.integers(0, 3),
        iteration=st.integers(0, 6),
        is_warmup=st.booleans(),
        is_cold=st.booleans(),
        is_instrumented=st.booleans(),
        offload_s=_SECONDS | st.none(),
        reload_s=_SECONDS | st.none(),
        freed_bytes=st.integers(0, 2**50) | st.none(),
        copied_bytes=st.integers(0, 2**50) | st.none(),
        states_intact=st.booleans() | st.none(),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda row: (row.rank, row.iteration),
)


@given(rows=_ROWS)
def test_headline_is_the_median_of_the_slowest_ranks(rows: list[IterationFigures]) -> None:
    found = figures(rows, OK)
    plain = [row for row in rows if not (row.is_warmup or row.is_cold or row.is_instrumented)]
    warm = [row for row in plain if row.offload_s is not None]
    slowest = [
        max(row.offload_s for row in warm if row.iteration == number and row.offload_s is not None)
        for number in sorted({row.iteration for row in warm})
    ]
    assert found["offload_s_median"] == (median(slowest) if slowest else None)
    if slowest:
        assert found["offload_s_p95"] == pytest.approx(float(np.percentile(slowest, 95)))
        assert found["offload_s_min"] <= found["offload_s_median"] <= found["offload_s_p95"] <= max(slowest)
        per_rank = {
            r: median(row.offload_s or 0 for row in warm if row.rank == r) for r in {w.rank for w in warm}
        }
        assert per_rank[found["offload_slowest_rank"]] == max(per_rank.values())
    assert found["ranks"] == len({row.rank for row in rows})
    assert figures(list(reversed(rows)), OK) == found


@given(rows=_ROWS)
def test_states_that_changed_are_never_valid(rows: list[IterationFigures]) -> None:
    found = figures(rows, OK)
    assert found["is_valid"] == all(row.states_intact is not False for row in rows)
    assert not figures(rows, Circumstances(is_ok=False))["is_valid"]


@given(values=st.dictionaries(st.integers(0, 50), st.floats(-1e6, 1e6), min_size=2))
def test_slope_equals_numpys(values: dict[int, float]) -> None:
    expected = np.polynomial.polynomial.polyfit(list(values), list(values.values()), 1)[1]
    assert slope(values) == pytest.approx(float(expected), rel=1e-4, abs=1e-3)


@given(values=st.lists(st.floats(allow_nan=False), min_size=1))
def test_percentile_lies_within(values: list[float]) -> None:
    found = percentile(values, 0.95)
    assert found is not None
    assert min(values) <= found <= max(values) or math.isinf(min(values))


def _warm(**values: Any) -> list[IterationFigures]:
    return [IterationFigures(0, number, offload_s=0.5, reload_s=1.0, **values) for number in range(3)]


@pytest.mark.parametrize(
    ("values", "about", "valid"),
    [
        ({}, {}, True),
        ({"bytes_match": False}, {}, False),
        ({"bytes_match": None}, {}, True),
        ({"devices_ok": False}, {}, False),
        ({}, {"overlapped": True}, False),
        ({}, {"overlapped": True, "contention": 2}, True),
    ],
)
def test_flags_decide_validity(values: dict[str, Any], about: dict[str, Any], valid: bool) -> None:
    assert figures(_warm(**values), Circumstances(is_ok=True, **about))["is_valid"] is valid


def _probe(direction: str, gbps: float, minute: int, at_once: int = 1) -> Probe:
    return Probe("g", direction, gbps, at_once, f"2026-07-01T12:{minute:02}:00.000000Z")


def test_probes_nearest_to_the_job_give_the_link() -> None:
    probes = [
        _probe("down", 1.0, 0), _probe("down", 10.0, 5), _probe("down", 12.0, 30), _probe("down", 99.0, 40),
        _probe("up", 20.0, 5), _probe("down", 7.0, 29, at_once=2),
    ]  # fmt: skip
    about = Circumstances(
        True, device_uuids=["g"], probes=probes, timed_from_at="2026-07-01T12:10:00Z",
        timed_to_at="2026-07-01T12:20:00Z",
    )  # fmt: skip
    link, drift = around("down", 0, about)
    assert (link, drift) == pytest.approx((11.0, 2 / 11))
    assert around("up", 0, about) == (20.0, None)
    found = figures(_warm(copied_bytes=5 * 10**9), about)
    assert found["offload_gbps"] == 10.0
    assert found["offload_link_share"] == pytest.approx(10 / 11)
    assert found["reload_link_share"] == pytest.approx(5 / 20)
    assert not found["is_valid"]  # the link drifted by 18 %


def test_a_job_that_is_pinned_in_part_is_held_to_both_links_one_after_the_other() -> None:
    probes = [
        replace(_probe(direction, gbps, 5), pinned=pinned)
        for pinned, gbps in ((True, 50.0), (False, 10.0))
        for direction in ("down", "up")
    ]
    about = Circumstances(
        True, device_uuids=["g"], probes=probes, timed_from_at="2026-07-01T12:10:00Z", pinned_share=0.5
    )
    # Half a byte at 50 and half at 10: faster than pageable alone, which is no error of the probe.
    link, drift = around("up", 0, about)
    assert link == pytest.approx(1 / (0.5 / 50 + 0.5 / 10)) and drift is None
    found = figures(_warm(copied_bytes=7_500_000_000), about)
    assert found["offload_link_share"] == pytest.approx(0.9)
    assert found["is_valid"]
    assert around("up", 0, replace(about, pinned_share=0.0)) == (10.0, None)
    assert around("up", 0, replace(about, pinned_share=1.0)) == (50.0, None)
    # Nobody knows how much, or one of the two links: no share at all.
    assert around("up", 0, replace(about, pinned_share=None)) == (None, None)
    assert around("up", 0, replace(about, probes=probes[:2])) == (None, None)


def test_no_speed_is_given_where_there_is_no_device() -> None:
    found = figures(_warm(copied_bytes=5 * 10**9), Circumstances(True))
    assert found["offload_gbps"] is None and found["reload_gbps"] is None
    assert found["copied_bytes"] == 5 * 10**9


def test_faster_than_the_link_is_not_valid() -> None:
    about = Circumstances(
        True, device_uuids=["g"], probes=[_probe("down", 1.0, 5)], timed_from_at="2026-07-01T12:10:00Z"
    )
    assert not figures(_warm(copied_bytes=10**9), about)["is_valid"]


def test_the_cold_iteration_is_in_no_median_when_nothing_is_warm_up() -> None:
    rows = [IterationFigures(0, number, is_cold=number == 0, offload_s=9.0 - number) for number in range(3)]
    found = figures(rows, OK)
    assert (found["offload_s_median"], found["warm_iterations"], found["offload_cold_s"]) == (7.5, 2, 9.0)
    alone = figures(rows[:1], OK)
    assert (alone["offload_s_median"], alone["warm_iterations"], alone["offload_cold_s"]) == (None, 0, 9.0)


def test_cold_iteration_is_kept_apart_and_leak_is_a_slope() -> None:
    rows = [
        IterationFigures(
            rank, number, is_warmup=number < 2, is_cold=number == 0,
            offload_s=10.0 if number == 0 else 1.0 + rank,
            pinning_s=9.0 + rank if number == 0 else 0.0, allocated_before_bytes=1000 + 8 * number,
            freed_bytes=100 - rank, predicted_freed_bytes=100, skipped_step=number == 0,
        )
        for rank in range(2)
        for number in range(6)
    ]  # fmt: skip
    found = figures(rows, OK)
    assert found["offload_cold_s"] == 10.0
    assert found["cold_pinning_s"] == 10.0
    assert found["offload_s_median"] == 2.0
    assert found["warm_iterations"] == 4
    assert found["leak_bytes"] == pytest.approx(8.0)
    assert found["offload_drift_s"] == pytest.approx(0.0)
    assert (found["freed_bytes"], found["predicted_freed_bytes"]) == (99, 100)
    assert found["skipped_steps"] == 1
