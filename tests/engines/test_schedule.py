"""The scheduling loop on a real store, with an engine that ends jobs as the test says."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from orchestrator.engines.base import (
    Capacity,
    Ended,
    Engine,
    EngineEvent,
    Lost,
    Started,
    SweepOptions,
)
from orchestrator.engines.outcome import StopReason, SweepOutcome
from orchestrator.engines.progress import Silent
from orchestrator.engines.run import run_sweep
from orchestrator.errors import DatabaseError, DatabaseFull, DatabaseUnreachable
from orchestrator.spec.load import parse_plan
from orchestrator.store.opening import open_store
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import FailureKind, JobStatus, Verdict
from orchestrator.store.store import Store

OK = Verdict(JobStatus.ok)
FAILED = Verdict(JobStatus.failed, FailureKind.exception, "as asked")
Plot = Callable[[JobRow, int], Verdict | str]


class Scripted:
    """Ends each attempt, in the next ``poll``, as ``plot(job, attempt number)`` says.

    ``lost``: its supervisor is gone. ``retry``: failed, to be tried again. ``runs``: never, unless cancelled.
    """

    name = "scripted"
    claims_itself = False

    def __init__(self, store: Store, plot: Plot, slots: int = 1, refuse: str | None = None) -> None:
        self.store, self.plot, self.slots, self.refuse = store, plot, slots, refuse
        self.reserved: set[str] = set()
        self.running: dict[str, tuple[JobRow, AttemptRow]] = {}
        self.order: list[tuple[int, int]] = []
        self.tries: list[int] = []
        self.most = 0
        self.closed: list[bool] = []
        self.due: deque[str] = deque()
        self.on_poll: Callable[[], None] = lambda: None

    def open(self, sweep_uid: str, wake_fd: int) -> None:
        assert sweep_uid

    def capacity(self) -> Capacity:
        return Capacity(self.slots, self.slots, label="scripted")

    def check(self, job: JobRow) -> str | None:
        return self.refuse if job.cell_values.values["hidden_dim"] == 2 else None

    def reserve(self, job: JobRow) -> NewAttempt | None:
        if len(self.reserved) >= self.slots:
            return None
        uid = uuid.uuid4().hex
        self.reserved.add(uid)
        return NewAttempt(uid, "local", "fork", f"/nowhere/{uid}", "nobody:1:1")

    def release(self, attempt_uid: str) -> None:
        self.reserved.discard(attempt_uid)

    def submit(self, job: JobRow, attempt: AttemptRow, tries: int) -> None:
        self.running[attempt.uid] = job, attempt
        self.most = max(self.most, len(self.running))
        self.order.append((int(str(job.cell_values.values["hidden_dim"])), job.repeat))
        self.tries.append(tries)
        self.due.append(attempt.uid)

    def want(self, runnable: int) -> None:
        raise AssertionError("not a pilot")

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        self.on_poll()
        if not self.due:
            time.sleep(min(timeout_s, 0.01))
            return []
        uid = self.due.popleft()
        job, attempt = self.running[uid]
        fate = self.plot(job, attempt.number)
        if fate == "runs":
            return []
        if fate == "lost":
            self._over(uid)
            return [Lost(uid, "gone")]
        if isinstance(fate, str):
            self.store.end_attempt(attempt.attempt_id, FAILED, retry=True)
            self._over(uid)
            return [Ended(uid, FAILED, retry=True)]
        self.store.end_attempt(attempt.attempt_id, fate)
        self._over(uid)
        return [Ended(uid, fate)]

    def cancel(self, attempt_uid: str) -> None:
        self.plot = lambda _job, _number: Verdict(JobStatus.cancelled)
        self.due.append(attempt_uid)

    def adopt(self, attempts: Sequence[AttemptRow]) -> Sequence[AttemptRow]:
        return attempts

    def close(self, *, kill: bool) -> None:
        self.closed.append(kill)

    def _over(self, uid: str) -> None:
        del self.running[uid]
        self.release(uid)


class Listening(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def notice(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "orch.db"), create=True, patience_s=0.0) as opened:
        yield opened


def run(
    store: Store, engine: Engine, options: SweepOptions | None = None, *, repeats: int = 3,
    dims: str = "[1]", limits: str = "", view: Silent | None = None,
) -> SweepOutcome:  # fmt: skip
    plan = parse_plan(f"name: s\nrepeats: {repeats}\nmatrix: {{hidden_dim: {dims}}}\nlimits: {{{limits}}}\n")
    return run_sweep(store, plan, engine, options, view)


def test_schedule_runs_jobs_by_position_and_no_more_at_once_than_there_is_room(store: Store) -> None:
    engine = Scripted(store, lambda *_: OK, slots=2)
    outcome = run(store, engine, dims="[1, 3]")
    assert engine.order == [(1, 1), (3, 1), (1, 2), (3, 2), (1, 3), (3, 3)]
    assert engine.most == 2
    assert outcome.exit_status == 0
    assert outcome.counts[JobStatus.ok] == 6
    assert engine.closed == [False]


def test_schedule_infrastructure_failure_comes_first_again_and_tries_are_counted(store: Store) -> None:
    engine = Scripted(store, lambda job, number: "retry" if job.repeat == 1 and number < 3 else OK)
    outcome = run(store, engine, repeats=2)
    assert engine.order == [(1, 1), (1, 1), (1, 1), (1, 2)]
    assert engine.tries == [0, 1, 2, 0]
    assert outcome.exit_status == 0


def test_schedule_lost_attempt_is_tried_again_as_often_as_allowed(store: Store) -> None:
    engine = Scripted(store, lambda *_: "lost")
    outcome = run(store, engine, SweepOptions(retries=2), repeats=1)
    assert len(engine.order) == 3
    assert outcome.counts[JobStatus.lost] == 1
    assert outcome.exit_status == 1


def test_b16_schedule_with_many_slots_stops_exactly_after_n_in_a_row(store: Store) -> None:
    engine = Scripted(store, lambda *_: FAILED, slots=3)
    outcome = run(store, engine, repeats=20, limits="consecutive_failures: 7")
    assert outcome.counts[JobStatus.failed] == 7
    assert outcome.counts[JobStatus.pending] == 13
    assert outcome.stop_reason is StopReason.in_a_row
    assert outcome.exit_status == 1
    assert "stopped after 7 failures in a row (as asked); 13 jobs stay pending" in outcome.lines()[-1]


def test_schedule_skipped_job_is_weighed_again(store: Store) -> None:
    first = run(store, Scripted(store, lambda *_: OK, refuse="no room"), dims="[1, 2]")
    assert first.exit_status == 0
    assert (first.counts[JobStatus.ok], first.counts[JobStatus.skipped]) == (3, 3)
    assert {job.reason for job in store.jobs(1, [JobStatus.skipped])} == {"no room"}
    second = run(store, Scripted(store, lambda *_: OK), dims="[1, 2]")
    assert second.counts[JobStatus.ok] == 6


@pytest.mark.parametrize("away", [DatabaseUnreachable("no server answers"), DatabaseFull("the disk is full")])
def test_schedule_database_away_or_full_waits_and_catches_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, away: DatabaseError
) -> None:
    begin, failures = store.begin_attempts, [2]

    def sometimes(new: Sequence[tuple[int, NewAttempt]]) -> list[AttemptRow | None]:
        if failures[0]:
            failures[0] -= 1
            raise away
        return begin(new)

    monkeypatch.setattr(store, "begin_attempts", sometimes)
    view, engine = Listening(), Scripted(store, lambda *_: OK)
    assert run(store, engine, view=view).exit_status == 0
    assert [line for line in view.lines if "no new one starts" in line]
    assert view.lines[-1] == "the database is back"
    assert not engine.reserved


def test_schedule_damaged_database_ends_the_sweep_with_the_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_new: object) -> list[AttemptRow | None]:
        raise DatabaseError("it is damaged")

    monkeypatch.setattr(store, "begin_attempts", damaged)
    engine = Scripted(store, lambda *_: OK)
    with pytest.raises(DatabaseError):
        run(store, engine)
    assert engine.closed == [False]


def test_schedule_earlier_running_attempt_of_a_dead_orch_is_settled_and_run_again(store: Store) -> None:
    def dies(_job: JobRow, _number: int) -> Verdict:
        raise KeyboardInterrupt

    engine = Scripted(store, dies)
    with pytest.raises(KeyboardInterrupt):
        run(store, engine, repeats=1)
    assert engine.closed == [True]
    assert store.running_attempts()
    outcome = run(store, Scripted(store, lambda *_: OK), repeats=1)
    assert outcome.counts[JobStatus.ok] == 1
    assert [one.status for one in store.attempts(1)] == [JobStatus.lost, JobStatus.ok]


def test_b5_schedule_signal_cancels_what_runs(store: Store) -> None:
    engine = Scripted(store, lambda *_: "runs", slots=2)
    sent = [False]

    def send() -> None:
        if engine.most == 2 and not sent[0]:
            sent[0] = True
            os.kill(os.getpid(), signal.SIGTERM)

    engine.on_poll = send
    outcome = run(store, engine)
    assert outcome.exit_status == 143
    assert outcome.counts[JobStatus.cancelled] == 2
    assert outcome.counts[JobStatus.pending] == 1
    assert outcome.cancelled_now == 2


def test_schedule_cancel_from_elsewhere_stops(store: Store) -> None:
    engine = Scripted(store, lambda *_: "runs")
    asked = [False]

    def ask() -> None:
        if engine.running and not asked[0]:
            asked[0] = True
            store.request_cancel("s")

    engine.on_poll = ask
    outcome = run(store, engine)
    assert outcome.stop_reason is StopReason.cancelled
    assert outcome.exit_status == 1


class Pilot(Scripted):
    """Takes jobs from the database itself, as a pilot in an allocation does."""

    claims_itself = True

    def __init__(self, store: Store, plot: Plot) -> None:
        super().__init__(store, plot)
        self.wanted: list[int] = []
        self.events: list[EngineEvent] = []

    def reserve(self, job: JobRow) -> NewAttempt | None:
        raise AssertionError("a pilot claims")

    def want(self, runnable: int) -> None:
        self.wanted.append(runnable)
        claimed = self.store.claim_next(1, lambda _job: self._draft(), lambda _job: True)
        if claimed is None:
            return
        job, attempt = claimed
        fate = self.plot(job, attempt.number)
        verdict, retry = (FAILED, True) if isinstance(fate, str) else (fate, False)
        self.store.end_attempt(attempt.attempt_id, verdict, retry=retry)
        if job.repeat % 2:  # the others are over before anybody has seen them running
            self.events.append(Started(attempt.uid, where="node1", job_id=job.job_id))
        self.events.append(Ended(attempt.uid, verdict, retry, job.job_id))

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        events, self.events = self.events, []
        return events

    @staticmethod
    def _draft() -> NewAttempt:
        return NewAttempt(uuid.uuid4().hex, "slurm", "fork", "/nowhere", "nobody:1:1")


def test_schedule_pilots_are_told_how_many_wait_until_none_does(store: Store) -> None:
    engine = Pilot(store, lambda job, number: "retry" if job.repeat == 2 and number == 1 else OK)
    outcome = run(store, engine, repeats=3)
    assert outcome.counts[JobStatus.ok] == 3
    assert outcome.ran == 3
    assert engine.wanted == [3, 2, 2, 1, 0]
