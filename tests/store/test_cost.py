"""A job costs the same in a small and in a large database: nothing on its way scans a table that grows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import event

from orchestrator.store import JobStatus, Store, Verdict
from orchestrator.store.rows import AttemptEnd, ProbeRow
from tests.store.plans import begin_one, deliver, make_plan, new_attempt


def test_no_statement_of_a_job_scans_a_table(sqlite_store: Store, tmp_path: Path) -> None:
    store = sqlite_store
    begin_one(store, tmp_path, make_plan("other"))
    change = store.put_sweep(make_plan(repeats=3))
    store.put_probes([ProbeRow("h", "GPU-1", True, "down", 1, 1, 1.0, 1.0)])
    said: list[tuple[str, object]] = []

    @event.listens_for(store.session.engine, "before_cursor_execute")
    def listen(_c: object, _cursor: object, text: str, values: object, _x: object, many: bool) -> None:
        said.append((text, values[0] if many and isinstance(values, list) else values))

    claimed = store.claim_next(
        change.sweep_id, lambda _: new_attempt(tmp_path, device_uuids=["GPU-1"]), lambda _: True
    )
    assert claimed is not None
    attempt = claimed[1]
    (tmp_path / "spool").mkdir()
    deliver(attempt, tmp_path / "spool")
    store.intake(attempt.attempt_id, tmp_path / "spool")
    store.attempt_update(attempt.attempt_id, port=5)
    store.heartbeat([attempt.attempt_id])
    assert store.end_attempt(attempt.attempt_id, Verdict(JobStatus.ok), wall_s=1.0)
    with closing(sqlite3.connect(str(store.session.where.path))) as connection:
        for text, values in said:
            if text.startswith(("BEGIN", "COMMIT", "PRAGMA")):
                continue
            plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()  # type: ignore[arg-type]
            scans = [row[3] for row in plan if row[3].startswith("SCAN") and "CONSTANT" not in row[3]]
            assert scans == [], f"{scans}: {text}"
    assert len(said) < 40


def test_what_the_supervisor_set_stays(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path)
    store.attempt_update(attempt.attempt_id, launch_mode="fork")
    store.attempt_update(attempt.attempt_id, launch_mode="spawn", launch_note="the server is not safe")
    deliver(attempt, spool)
    store.intake(attempt.attempt_id, spool)
    after = store.attempt(attempt.attempt_id)
    assert after is not None
    assert (after.launch_mode, after.launch_note) == ("spawn", "the server is not safe")


def test_many_attempts_take_as_many_statements_as_one(sqlite_store: Store, tmp_path: Path) -> None:
    store = sqlite_store
    said: list[str] = []

    @event.listens_for(store.session.engine, "before_cursor_execute")
    def listen(_c: object, _cursor: object, text: str, _values: object, _x: object, _many: bool) -> None:
        said.append(text)

    counts = {}
    for many in (1, 8):
        change = store.put_sweep(make_plan(f"of {many}", repeats=4))
        jobs = store.runnable(change.sweep_id)[:many]
        said.clear()
        begun = store.begin_attempts([(job.job_id, new_attempt(tmp_path / job.uid)) for job in jobs])
        work = []
        for attempt in filter(None, begun):
            spool = Path(attempt.run_dir) / "spool"
            spool.mkdir(parents=True)
            deliver(attempt, spool)
            work.append((AttemptEnd(attempt.attempt_id, JobStatus.ok), spool))
        assert len(work) == many
        assert store.finish_attempts(work) == [True] * many
        counts[many] = len(said)
        assert store.counts(change.sweep_id)[JobStatus.ok] == many
    assert counts[8] == counts[1] <= 25
    assert store.check() == []


def test_a_job_twice_in_a_batch_gets_one_attempt(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan())
    job = store.runnable(change.sweep_id)[0]
    first, second = new_attempt(tmp_path / "a"), new_attempt(tmp_path / "b")
    begun = store.begin_attempts([(job.job_id, first), (job.job_id, second)])
    assert [one.uid if one else None for one in begun] == [first.uid, None]
    again = store.begin_attempts([(job.job_id, first), (job.job_id, second)])
    assert [one.uid if one else None for one in again] == [first.uid, None]


def test_one_refused_end_does_not_hold_up_the_others(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan())
    jobs = store.runnable(change.sweep_id)
    one, other = store.begin_attempts([(job.job_id, new_attempt(tmp_path / job.uid)) for job in jobs])
    assert one is not None and other is not None
    store.end_attempt(one.attempt_id, Verdict(JobStatus.cancelled))
    ends = [AttemptEnd(attempt.attempt_id, JobStatus.ok) for attempt in (one, other)]
    assert store.finish_attempts([(end, None) for end in ends]) == [False, True]
    assert store.counts(change.sweep_id)[JobStatus.cancelled] == 1
    assert store.counts(change.sweep_id)[JobStatus.ok] == 1
    assert any("refused" in (note.message or "") for note in store.events(job_id=one.job_id))
