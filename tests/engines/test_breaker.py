"""Failures in a row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.breaker import Breaker, is_failure
from orchestrator.store.status import JobStatus

ENDS = [status for status in JobStatus if status.is_final]


def test_breaker_trips_after_limit_in_a_row_and_stays_tripped() -> None:
    breaker = Breaker(3)
    for status in ("failed", "ok", "failed", "timeout"):
        breaker.ended(JobStatus(status))
    tripped = [breaker.tripped]
    for status in ("oom_gpu", "ok"):
        breaker.ended(JobStatus(status))
        tripped.append(breaker.tripped)
    assert tripped == [False, True, True]


@given(st.lists(st.sampled_from(ENDS)), st.integers(1, 4))
def test_breaker_equals_the_longest_run_of_failures(ends: list[JobStatus], limit: int) -> None:
    breaker = Breaker(limit)
    longest = run = 0
    for status in ends:
        breaker.ended(status)
        if is_failure(status):
            run += 1
        elif status is JobStatus.ok:
            run = 0
        longest = max(longest, run)
    assert breaker.tripped == (longest >= limit)
