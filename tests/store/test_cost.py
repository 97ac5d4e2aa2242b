"""A job costs the same in a small and in a large database: nothing on its way scans a table that grows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import event

from orchestrator.store import JobStatus, Store, Verdict
from orchestrator.store.rows import ProbeRow
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
