"""What the last lines of a sweep say and the exit status that goes with them."""

from __future__ import annotations

import pytest

from orchestrator.engines.outcome import StopReason, SweepOutcome
from orchestrator.store.status import JobStatus


def outcome(counts: dict[JobStatus, int], reason: StopReason | None = None) -> SweepOutcome:
    return SweepOutcome("s", counts, 1, 1.0, reason, 130, continue_with="orch sweep s.yaml")


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        ({JobStatus.ok: 2}, 0),
        ({JobStatus.ok: 1, JobStatus.skipped: 1}, 0),
        ({JobStatus.skipped: 2}, 0),
        ({JobStatus.ok: 1, JobStatus.failed: 1}, 1),
        ({JobStatus.ok: 1, JobStatus.timeout: 1}, 1),
        ({JobStatus.ok: 1, JobStatus.running: 1}, 1),
        ({JobStatus.ok: 1, JobStatus.cancelled: 1}, 0),  # of an earlier run, no longer in the sweep file
    ],
)
def test_exit_status_follows_the_worst_job(counts: dict[JobStatus, int], status: int) -> None:
    assert outcome(counts).exit_status == status


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({JobStatus.failed: 8}, "8 failed. Run again with: orch sweep s.yaml --retry-failed"),
        ({JobStatus.ok: 1, JobStatus.timeout: 1, JobStatus.lost: 1},
         "2 failed. Run again with: orch sweep s.yaml --retry-failed"),
        ({JobStatus.lost: 1}, "1 lost. Run again with: orch sweep s.yaml"),
    ],
)  # fmt: skip
def test_sweep_with_failed_jobs_says_what_runs_them_again(counts: dict[JobStatus, int], line: str) -> None:
    assert outcome(counts).lines()[1:] == [line]


def test_signal_decides_the_exit_status() -> None:
    assert outcome({JobStatus.failed: 1}, StopReason.signal).exit_status == 130


def test_job_whose_end_was_not_recorded_is_named_with_its_remedy() -> None:
    lines = outcome({JobStatus.ok: 1, JobStatus.running: 1}).lines()
    assert any("1 still marked running" in line and "orch sweep s.yaml" in line for line in lines)


def test_job_that_somebody_cancelled_is_named_with_what_runs_it() -> None:
    counts = {JobStatus.ok: 1, JobStatus.cancelled: 1}
    one = SweepOutcome("s", counts, 2, 1.0, cancelled_now=1, continue_with="orch sweep s.yaml")
    assert one.exit_status == 1
    assert one.lines()[1:] == ["1 cancelled by hand. Run with: orch sweep s.yaml"]


@pytest.mark.parametrize(("lost", "words"), [(0, "nothing lost"), (2, "2 lost")])
def test_interrupted_sweep_says_how_many_jobs_were_cancelled_and_how_many_lost(lost: int, words: str) -> None:
    counts = {JobStatus.cancelled: 3, JobStatus.lost: lost}
    one = SweepOutcome(
        "s", counts, 3 + lost, 1.0, StopReason.signal, 130, 3, lost, continue_with="orch sweep s.yaml"
    )
    assert one.lines()[-1] == f"stopped: 3 running jobs cancelled, {words}. Continue with: orch sweep s.yaml"


def test_interrupted_sweep_that_is_not_recorded_says_where_it_lies_and_what_continues_it() -> None:
    one = SweepOutcome(
        "s", {}, 0, 1.0, StopReason.signal, 130, unrecorded="pg: away", continue_with="orch sweep s.yaml"
    )
    assert one.exit_status == 130
    (line,) = one.lines()
    assert line == (
        "sweep s: stopped, but not all of it is recorded (pg: away); what was measured lies in the run"
        " directories, and the next orch sweep takes it in. Continue with: orch sweep s.yaml"
    )


def test_one_job_that_stays_is_no_plural() -> None:
    one = SweepOutcome("s", {JobStatus.pending: 1, JobStatus.failed: 1}, 1, 1.0, StopReason.fail_fast)
    assert "; 1 job stays pending." in one.lines()[-1]
