"""Is the database sound? What ``orch db check`` looks at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, func, select, text

from orchestrator.store.results import computed, refresh_results
from orchestrator.store.rows import Finding
from orchestrator.store.tables import attempt, counter, job, job_result, metadata
from orchestrator.store.transitions import ATTEMPT

_IDS = {
    "sweep": "sweep_id",
    "job": "job_id",
    "attempt": "attempt_id",
    "environment": "environment_id",
    "link_probe": "probe_id",
    "event": "event_id",
}
_CLOSE = 1e-9


def check_database(connection: Connection) -> list[Finding]:
    """Everything that is wrong; nothing is changed."""
    return [
        *_integrity(connection),
        *_orphans(connection),
        *_counters(connection),
        *_statuses(connection),
        *_results(connection),
    ]


def mend(connection: Connection) -> int:
    """Recompute ``job_result`` of every job and lift counters that are too low; returns the jobs."""
    for name, column in _IDS.items():
        table = metadata.tables[name]
        most = connection.execute(select(func.max(table.c[column]))).scalar_one() or 0
        low = (counter.c.name == name) & (counter.c.next_id <= most)
        connection.execute(counter.update().where(low).values(next_id=most + 1))
    ids = list(connection.execute(select(job.c.job_id)).scalars())
    refresh_results(connection, ids)
    return len(ids)


def _integrity(connection: Connection) -> Iterator[Finding]:
    if connection.dialect.name == "sqlite":
        for (line,) in connection.execute(text("PRAGMA integrity_check")):
            if line != "ok":
                yield Finding(f"SQLite says: {line}", "file", "restore a backup, or sqlite3 FILE .recover")


def _orphans(connection: Connection) -> Iterator[Finding]:
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            there = select(1).where(key.column == key.parent).exists()
            lost = select(func.count()).select_from(table).where(key.parent.is_not(None), ~there)
            number = connection.execute(lost).scalar_one()
            if number:
                yield Finding(f"{number} rows whose {key.parent.name} is not there", table.name)


def _counters(connection: Connection) -> Iterator[Finding]:
    next_ids = {row.name: row.next_id for row in connection.execute(select(counter))}
    for name, column in _IDS.items():
        most = connection.execute(select(func.max(metadata.tables[name].c[column]))).scalar_one() or 0
        if next_ids.get(name, 0) <= most:
            yield Finding(f"the next id {next_ids.get(name)} is taken already", name, "orch db check --fix")


def _statuses(connection: Connection) -> Iterator[Finding]:
    """A job's status must follow from its attempts."""
    attempts: dict[int, list[str]] = {}
    query = select(attempt.c.job_id, attempt.c.attempt_id, attempt.c.status).order_by(attempt.c.number)
    known = {str(status) for status in ATTEMPT}
    for job_id, attempt_id, status in connection.execute(query):
        attempts.setdefault(job_id, []).append(status)
        if status not in known:
            yield Finding(f"status '{status}' is unknown", f"attempt {attempt_id}")
    for job_id, status in connection.execute(select(job.c.job_id, job.c.status)):
        problem = status_problem(status, attempts.get(job_id, []))
        if problem:
            yield Finding(problem, f"job {job_id}", "continue the sweep: orch sweep SPEC")


def status_problem(status: str, attempts: list[str]) -> str | None:
    """Why a job with these attempts, oldest first, cannot have that status."""
    running = attempts.count("running")
    if running > 1:
        return f"{running} attempts run at once"
    if (status == "running") != (running == 1):
        return f"it is {status}, its attempts are {', '.join(attempts) or 'none'}"
    if attempts.count("ok") > 1:
        return "more than one attempt is ok"
    if (status == "ok") != ("ok" in attempts):
        return f"it is {status}, its attempts are {', '.join(attempts) or 'none'}"
    if status in ("failed", "timeout", "oom_gpu", "oom_host", "lost") and status not in attempts:
        return f"it is {status}, its attempts are {', '.join(attempts) or 'none'}"
    return None


def _results(connection: Connection) -> Iterator[Finding]:
    stored = {row.job_id: dict(row._mapping) for row in connection.execute(select(job_result))}
    for job_id in list(connection.execute(select(job.c.job_id).order_by(job.c.job_id)).scalars()):
        ought = computed(connection, job_id)
        differences = _differences(stored.get(job_id), ought)
        if differences:
            yield Finding(
                f"job_result differs from the rows: {differences}", f"job {job_id}", "orch db check --fix"
            )


def _differences(stored: dict[str, Any] | None, ought: dict[str, Any] | None) -> str:
    if stored is None or ought is None:
        missing = "it is missing" if stored is None else "it should not be there"
        return "" if stored is ought else missing
    names = [name for name, value in ought.items() if not _same(stored[name], value)]
    return ", ".join(f"{name} {stored[name]} != {ought[name]}" for name in names[:5])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return one == other or math.isclose(one, other, rel_tol=_CLOSE)
    return bool(one == other)
