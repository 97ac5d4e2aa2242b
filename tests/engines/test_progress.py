"""Counts, time left, and how a running sweep looks."""

from __future__ import annotations

import io

import pytest

from orchestrator.cli.progress import PlainView, duration, failure_line, make_view, progress_line
from orchestrator.engines.progress import Tally
from orchestrator.spec.cell import make_cell
from orchestrator.store.rows import JobRow
from orchestrator.store.status import FailureKind, JobStatus, Verdict


def job(number: int, *, size: int = 64, status: JobStatus = JobStatus.pending) -> JobRow:
    cell = make_cell({"hidden_dim": size})
    return JobRow(number, f"uid{number}", 1, cell.key, number, number, status, None, True, 0, cell)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("orchestrator.engines.progress.time.monotonic", clock.monotonic)
    return clock


def test_tally_time_left_is_what_each_cell_took_over_how_many_ran_at_once(clock: Clock) -> None:
    jobs = [job(1), job(2), job(3, size=128), job(4, size=128), job(5)]
    tally = Tally()
    tally.begin({JobStatus.pending: 5}, jobs)
    assert tally.left_s() is None
    tally.started("a", jobs[0], "")
    tally.started("b", jobs[2], "")
    clock.now_s += 10
    tally.ended("a", JobStatus.ok)
    clock.now_s += 20
    tally.ended("b", JobStatus.ok)
    # 2 x 10 s and 1 x 30 s of work are left; 40 s of work were done in 30 s.
    assert tally.left_s() == pytest.approx(50 / (40 / 30))


def test_tally_time_left_leaves_out_what_the_first_job_waited_for(clock: Clock) -> None:
    tally = Tally()
    tally.begin({JobStatus.pending: 3}, [job(1), job(2), job(3)])
    tally.started("a", job(1), "")
    clock.now_s += 60  # the fork server gets ready
    tally.launched(tally.running["a"], "GPU 1")
    clock.now_s += 2
    tally.ended("a", JobStatus.ok)
    assert tally.left_s() == pytest.approx(4)


def test_tally_time_left_counts_from_the_first_of_several_launches(clock: Clock) -> None:
    tally = Tally()
    tally.begin({JobStatus.pending: 3}, [job(1), job(2), job(3)])
    tally.started("a", job(1), "")
    tally.launched(tally.running["a"], "")
    clock.now_s += 10
    tally.started("b", job(2), "")
    tally.launched(tally.running["b"], "")
    tally.ended("a", JobStatus.ok)
    assert tally.left_s() == pytest.approx(20)


def test_tally_counts_a_retry_as_pending_again(clock: Clock) -> None:
    tally = Tally()
    tally.begin({JobStatus.pending: 1}, [job(1)])
    tally.started("a", job(1), "")
    tally.ended("a", JobStatus.pending)
    assert tally.counts == {JobStatus.pending: 1, JobStatus.running: 0}
    assert tally.finished == 0


def test_progress_line_says_done_running_and_left(clock: Clock) -> None:
    tally = Tally()
    tally.begin({JobStatus.ok: 130, JobStatus.failed: 1, JobStatus.pending: 85}, [job(1), job(2)])
    tally.started("a", job(1), "")
    clock.now_s += 720
    tally.ended("a", JobStatus.ok)
    tally.started("b", job(2), "")
    entry = tally.running["b"]
    entry.where, entry.phase, entry.iteration, entry.of = "GPU 0", "timed", 6, 10
    short = job(1).cell_values.short
    assert progress_line(tally) == (
        f"132/216 ✓ 131 ✗ 1 · now: {short} round 2 on GPU 0 (iteration 6/10, timed) · 12 min left"
    )


def test_progress_line_says_that_another_orch_has_the_slots_while_nothing_runs() -> None:
    tally = Tally(waits_for_others=True)
    tally.begin({JobStatus.pending: 2}, [job(1), job(2)])
    assert progress_line(tally) == "0/2 ✓ 0 ✗ 0 · waits for free slots: another orch uses them"
    tally.started("a", job(1), "")
    assert progress_line(tally) == f"0/2 ✓ 0 ✗ 0 · now: {job(1).cell_values.short} round 1"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (720, "12 min"), (12000, "3 h 20 min"), (400000, "111 h")],
)
def test_duration_is_as_precise_as_an_estimate(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_failure_line_names_the_command_that_shows_the_log() -> None:
    verdict = Verdict(JobStatus.failed, FailureKind.killed, "rank 0 was killed by SIGKILL")
    label, short = job(2).label, job(2).cell_values.short
    assert failure_line(job(2), verdict, retry=False) == (
        f" ✗ {short} round 2: failed (killed): rank 0 was killed by SIGKILL · orch logs {label}"
    )


def test_view_on_an_ascii_stream_shows_no_unknown_character() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    view = make_view(out)
    assert isinstance(view, PlainView)
    view.begin("sweep s")
    view.failed(job(1), Verdict(JobStatus.timeout, None, "nach 5 s – aus"), retry=False)
    out.flush()
    assert b"failed" in raw.getvalue()


def test_view_quiet_shows_failures_only() -> None:
    out = io.StringIO()
    view = make_view(out, quiet=True)
    view.begin("sweep s")
    view.update(Tally())
    assert out.getvalue() == ""
    view.failed(job(1), Verdict(JobStatus.timeout, None, "late"), retry=True)
    assert "tried again" in out.getvalue()
