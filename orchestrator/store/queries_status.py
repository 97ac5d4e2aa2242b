"""The reads behind ``orch status``, ``show`` and ``logs``: small, without pandas."""

from __future__ import annotations

from orchestrator.store.owner import owner_is_alive, process_is_alive
from orchestrator.store.queries_report import Reads, Value, fetch
from orchestrator.store.rows import SweepRow

# A job that the sweep file no longer asks for counts while it runs, as in the sweep's own last line.
_COUNTS = """
SELECT status, (in_spec OR status = 'running') AS in_spec, COUNT(*) AS jobs FROM job
WHERE sweep_id = :sweep_id GROUP BY status, (in_spec OR status = 'running') ORDER BY status
"""


def status_counts(store: Reads, sweep_id: int) -> tuple[dict[str, int], int]:
    """Jobs that the sweep file asks for by status, a status without jobs left out; and how many others."""
    found = fetch(store, _COUNTS, sweep_id=sweep_id).dicts()
    counts = {str(row["status"]): int(str(row["jobs"])) for row in found if row["in_spec"]}
    return counts, sum(int(str(row["jobs"])) for row in found if not row["in_spec"])


def has_living_attempt(store: Reads, sweep_id: int) -> bool:
    """Whether anybody supervises a running attempt of the sweep: its orch, or on a cluster a pilot."""
    from orchestrator.store.attempts import running_attempts as attempt_rows

    return any(owner_is_alive(one) for one in store.read(lambda c: attempt_rows(c, sweep_id)))


def runner(store: Reads, sweep: SweepRow) -> str | None:
    """Who runs the sweep now; None if nobody does, also if whoever did was killed.

    This host's kernel knows of its processes. Of another host's orch PostgreSQL knows by its lock; with a
    file, a recent heartbeat of what it runs is the sign of life.
    """
    if sweep.owner is None:
        return None
    alive = process_is_alive(sweep.owner)
    if alive is None:
        from orchestrator.store.locks import is_server_locked

        alive = store.read(lambda c: is_server_locked(c, sweep.name))
    if alive is None:
        alive = has_living_attempt(store, sweep.sweep_id)
    return sweep.owner if alive else None


_RUNNING = """
SELECT j.job_id, j.cell, j.repeat, a.attempt_id, a.number, a.started_at, a.created_at, a.heartbeat, a.host,
       a.engine, a.launch_mode, a.run_dir, a.timed_from_at, a.timed_to_at
FROM job j JOIN attempt a ON a.job_id = j.job_id
WHERE j.sweep_id = :sweep_id AND j.status = 'running' AND a.status = 'running'
ORDER BY a.created_at, j.job_id
"""


def running_attempts(store: Reads, sweep_id: int) -> list[dict[str, Value]]:
    """The attempts that run now, oldest first."""
    return fetch(store, _RUNNING, sweep_id=sweep_id).dicts()


_TROUBLE = """
SELECT j.job_id, j.cell, j.repeat, j.status, a.failure_kind, COALESCE(a.message, j.reason) AS reason,
       a.ended_at
FROM job j LEFT JOIN attempt a ON a.job_id = j.job_id
    AND a.number = (SELECT MAX(b.number) FROM attempt b WHERE b.job_id = j.job_id)
WHERE j.sweep_id = :sweep_id AND j.in_spec AND j.status IN (
    'failed', 'timeout', 'oom_gpu', 'oom_host', 'lost', 'skipped')
ORDER BY CASE WHEN j.status = 'skipped' THEN 1 ELSE 0 END, a.ended_at DESC, j.position LIMIT :most
"""


def troubled_jobs(store: Reads, sweep_id: int, most: int = 20) -> list[dict[str, Value]]:
    """Jobs that gave no result, the latest failures first, skipped ones last."""
    return fetch(store, _TROUBLE, sweep_id=sweep_id, most=most).dicts()


_JOB = "SELECT * FROM job_summary WHERE job_id = :job_id"
_ATTEMPTS = "SELECT * FROM attempt WHERE job_id = :job_id ORDER BY number"
_EVENTS = "SELECT * FROM event WHERE job_id = :job_id ORDER BY event_id"
_RECORDS = """
SELECT rank, COUNT(*) AS iterations, MIN(offload_s) AS offload_s_min, MAX(offload_s) AS offload_s_max,
       MIN(reload_s) AS reload_s_min, MAX(reload_s) AS reload_s_max, MAX(copied_bytes) AS copied_bytes,
       MIN(freed_bytes) AS freed_bytes, MAX(pinned_bytes) AS pinned_bytes
FROM iteration WHERE attempt_id = :attempt_id GROUP BY rank ORDER BY rank
"""
_ENVIRONMENT = "SELECT * FROM environment WHERE environment_id = :environment_id"


def job_summary(store: Reads, job_id: int) -> dict[str, Value]:
    """The job's row of ``job_summary``."""
    return fetch(store, _JOB, job_id=job_id).dicts()[0]


def attempts(store: Reads, job_id: int) -> list[dict[str, Value]]:
    """The job's attempts, first to last."""
    return fetch(store, _ATTEMPTS, job_id=job_id).dicts()


_ATTEMPT_STATUS = "SELECT status FROM attempt WHERE uid = :uid"


def attempt_has_ended(store: Reads, uid: str) -> bool:
    """Whether the attempt runs no more."""
    return fetch(store, _ATTEMPT_STATUS, uid=uid).values != [("running",)]


def events(store: Reads, job_id: int) -> list[dict[str, Value]]:
    """What happened to the job, oldest first."""
    return fetch(store, _EVENTS, job_id=job_id).dicts()


def rank_records(store: Reads, attempt_id: int) -> list[dict[str, Value]]:
    """What each rank of the attempt delivered: iterations and ranges."""
    return fetch(store, _RECORDS, attempt_id=attempt_id).dicts()


_ERRORS = """
SELECT rank, error_status, failure_kind, message, traceback FROM attempt_rank
WHERE attempt_id = :attempt_id AND error_status IS NOT NULL ORDER BY rank
"""


def rank_errors(store: Reads, attempt_id: int) -> list[dict[str, Value]]:
    """What ranks of the attempt reported of their own failure, by rank."""
    return fetch(store, _ERRORS, attempt_id=attempt_id).dicts()


def environment(store: Reads, environment_id: int) -> dict[str, Value] | None:
    """One host and software stack."""
    found = fetch(store, _ENVIRONMENT, environment_id=environment_id).dicts()
    return found[0] if found else None
