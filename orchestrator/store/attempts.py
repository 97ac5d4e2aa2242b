"""Attempts: claim a job, keep it alive, end it. Every function runs inside one writing transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Update,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    update,
)

from orchestrator.store.clock import utc_now
from orchestrator.store.coerce import column_value
from orchestrator.store.ids import NewEvent, add_events, take_ids
from orchestrator.store.results import refresh_results
from orchestrator.store.rows import AttemptEnd, AttemptRow, NewAttempt
from orchestrator.store.status import FailureKind, JobStatus
from orchestrator.store.tables import attempt, job
from orchestrator.store.transitions import CLAIMABLE, check_attempt, check_job

_CLOCKS: dict[str, ColumnElement[float]] = {
    "sqlite": literal_column("((julianday('now') - 2440587.5) * 86400.0)"),
    "postgresql": literal_column("CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"),
}
"""Seconds since 1970 on the database's clock: heartbeats of several hosts compare."""

_KEPT = (
    "attempt_id uid job_id number message engine engine_job launcher launch_mode launch_note host port"
    " run_dir environment_id created_at started_at timed_from_at timed_to_at ended_at wait_s wall_s loop_s"
    " exit_status signal overlapped overlap_note owner"
).split()
_READ = "status failure_kind hosts device_uuids heartbeat".split()
_RANKS = func.coalesce(job.c.num_gpus, 1) * func.coalesce(job.c.num_nodes, 1)
_SELECTS: dict[str, Select[tuple[Any, ...]]] = {
    name: select(
        *(attempt.c[column] for column in (*_KEPT, *_READ)),
        job.c.sweep_id,
        _RANKS.label("ranks"),
        (clock - attempt.c.heartbeat).label("age_s"),
    ).join(job, job.c.job_id == attempt.c.job_id)
    for name, clock in _CLOCKS.items()
}
_BY_ID = {name: query.where(attempt.c.attempt_id == bindparam("id")) for name, query in _SELECTS.items()}
_UID = select(attempt.c.uid).where(attempt.c.attempt_id == bindparam("id"))
_JOB_STATE = select(job.c.status, job.c.sweep_id).where(job.c.job_id == bindparam("id")).with_for_update()
_LAST_NUMBER = select(func.max(attempt.c.number)).where(attempt.c.job_id == bindparam("id"))
_SET_JOB = (
    update(job)
    .where(job.c.job_id == bindparam("id"))
    .values(status=bindparam("new"), reason=bindparam("why"), updated_at=bindparam("now"))
)
_STATE = (
    select(attempt.c.attempt_id, attempt.c.job_id, attempt.c.status, job.c.sweep_id)
    .join(job, job.c.job_id == attempt.c.job_id)
    .where(attempt.c.attempt_id == bindparam("id"))
    .with_for_update(of=attempt)
)


def database_clock(connection: Connection) -> ColumnElement[float]:
    """Seconds since 1970 on the database's clock, as an expression."""
    return _CLOCKS[connection.dialect.name]


def attempt_row(row: Row[tuple[Any, ...]]) -> AttemptRow:
    """A row of the select as a dataclass."""
    of = row._mapping
    return AttemptRow(
        **{name: of[name] for name in _KEPT},
        sweep_id=of["sweep_id"],
        ranks=of["ranks"],
        status=JobStatus(of["status"]),
        failure_kind=FailureKind(of["failure_kind"]) if of["failure_kind"] else None,
        hosts=tuple(json.loads(of["hosts"])) if of["hosts"] else None,
        device_uuids=tuple(json.loads(of["device_uuids"])) if of["device_uuids"] else None,
        heartbeat_age_s=of["age_s"],
    )


def find_attempts(connection: Connection, *conditions: Any) -> list[AttemptRow]:
    """Attempts, oldest first."""
    query = _SELECTS[connection.dialect.name].where(*conditions).order_by(attempt.c.attempt_id)
    return [attempt_row(row) for row in connection.execute(query)]


def find_attempt(connection: Connection, attempt_id: int) -> AttemptRow | None:
    """That attempt; None if there is none."""
    row = connection.execute(_BY_ID[connection.dialect.name], {"id": attempt_id}).first()
    return None if row is None else attempt_row(row)


def uid_of(connection: Connection, attempt_id: int) -> str | None:
    """The attempt's uid; None if there is none."""
    return connection.execute(_UID, {"id": attempt_id}).scalar_one_or_none()


def set_columns(
    connection: Connection, attempt_id: int, values: Mapping[str, Any], *, keep: frozenset[str] = frozenset()
) -> None:
    """Set columns of the attempt to values that fit; those in ``keep`` only where they are NULL."""
    if values:
        bound = {f"new_{name}": value for name, value in values.items()}
        connection.execute(_setter(tuple(values), keep), {"id": attempt_id, **bound})


@lru_cache(maxsize=64)
def _setter(names: tuple[str, ...], keep: frozenset[str]) -> Update:
    """Built once for each set of columns: building a statement costs more than running it."""
    new: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    new |= {name: func.coalesce(attempt.c[name], new[name]) for name in keep & new.keys()}
    return update(attempt).where(attempt.c.attempt_id == bindparam("id")).values(new)


def running_attempts(connection: Connection, sweep_id: int | None) -> list[AttemptRow]:
    """Attempts that run, of one sweep or of all."""
    conditions = [attempt.c.status == JobStatus.running]
    return find_attempts(connection, *conditions, *([] if sweep_id is None else [job.c.sweep_id == sweep_id]))


def begin(
    connection: Connection, job_id: int, new: NewAttempt, only: frozenset[JobStatus] = CLAIMABLE
) -> AttemptRow | None:
    """Claim the job and begin an attempt; None if its status is no longer one of ``only``.

    Safe to repeat: a second call with the same uid gives the attempt that the first one began.
    """
    state = connection.execute(_JOB_STATE, {"id": job_id}).first()
    if state is None:
        return None
    if state.status == JobStatus.running:
        again = find_attempts(connection, attempt.c.uid == new.uid, attempt.c.status == JobStatus.running)
        return again[0] if again else None
    old = JobStatus(state.status)
    if old not in only:
        return None
    check_job(old, JobStatus.running)
    number = (connection.execute(_LAST_NUMBER, {"id": job_id}).scalar_one() or 0) + 1
    attempt_id, now = take_ids(connection, "attempt"), utc_now()
    connection.execute(
        _INSERTS[connection.dialect.name],
        {
            "attempt_id": attempt_id,
            "uid": new.uid,
            "job_id": job_id,
            "number": number,
            "status": "running",
            "engine": new.engine,
            "engine_job": new.engine_job,
            "launcher": new.launcher,
            "launch_mode": new.launch_mode,
            "host": new.host,
            "hosts": json.dumps(list(new.hosts)) if new.hosts else None,
            "device_uuids": json.dumps(list(new.device_uuids)) if new.device_uuids else None,
            "port": new.port,
            "run_dir": new.run_dir,
            "created_at": now,
            "owner": new.owner,
        },
    )
    connection.execute(_SET_JOB, {"id": job_id, "new": "running", "why": None, "now": now})
    ids = {"sweep_id": state.sweep_id, "job_id": job_id, "attempt_id": attempt_id}
    add_events(connection, [{**ids, "kind": "job", "from_status": str(old), "to_status": "running"}])  # type: ignore[typeddict-item]
    return find_attempt(connection, attempt_id)


_BEGUN = (
    "attempt_id uid job_id number status engine engine_job launcher launch_mode host hosts device_uuids port"
    " run_dir created_at owner"
).split()
_INSERTS = {
    name: insert(attempt).values({**{c: bindparam(c) for c in _BEGUN}, "heartbeat": clock})
    for name, clock in _CLOCKS.items()
}


def claim(connection: Connection, job_id: int, new: NewAttempt) -> AttemptRow | None:
    """As ``begin``, but of a pending job alone."""
    return begin(connection, job_id, new, frozenset({JobStatus.pending}))


def update_attempt(connection: Connection, attempt_id: int, columns: Mapping[str, object]) -> None:
    """Set columns of the attempt, whatever its status; lists and mappings become JSON."""
    values = {name: column_value(attempt.c[name], value) for name, value in columns.items()}
    set_columns(connection, attempt_id, values)


def heartbeat(connection: Connection, attempt_ids: Iterable[int]) -> None:
    """Say that the attempts live, now on the database's clock."""
    ids = list(attempt_ids)
    if ids:
        clock = database_clock(connection)
        running = attempt.c.attempt_id.in_(ids) & (attempt.c.status == JobStatus.running)
        connection.execute(update(attempt).where(running).values(heartbeat=clock))


def end(connection: Connection, ending: AttemptEnd) -> bool:
    """End a running attempt and move its job; False, with an event, if it is no longer running.

    Safe to repeat: ending an attempt as what it already is changes nothing and gives True.
    """
    state = connection.execute(_STATE, {"id": ending.attempt_id}).first()
    if state is None:
        return False
    old, new = JobStatus(state.status), ending.status
    as_attempt = JobStatus.failed if new is JobStatus.skipped else new
    if old is not JobStatus.running:
        if old is as_attempt:
            return True
        _refuse(connection, state, f"late change to {new} refused: the attempt is {old} already")
        return False
    _finish(connection, state, ending, as_attempt)
    return True


def adopt_as_ok(connection: Connection, attempt_id: int, message: str) -> bool:
    """Make a running, lost or cancelled attempt ok, since every rank delivered; its job too if it may."""
    state = connection.execute(_STATE, {"id": attempt_id}).first()
    if state is None or state.status not in ("running", "lost", "cancelled"):
        return False
    job_status = connection.execute(_JOB_STATE, {"id": state.job_id}).one().status
    if job_status not in ("running", "pending", "lost", "cancelled"):
        return False
    newest = connection.execute(_LAST_NUMBER, {"id": state.job_id}).scalar_one()
    number = connection.execute(
        select(attempt.c.number).where(attempt.c.attempt_id == attempt_id)
    ).scalar_one()
    if job_status == "running" and number != newest:
        return False
    _finish(connection, state, AttemptEnd(attempt_id, JobStatus.ok), JobStatus.ok, message)
    return True


def _finish(
    connection: Connection,
    state: Any,
    ending: AttemptEnd,
    as_attempt: JobStatus,
    note: str | None = None,
) -> None:
    old, now = JobStatus(state.status), utc_now()
    check_attempt(old, as_attempt)
    kind = ending.failure_kind
    if ending.status is JobStatus.skipped:
        kind = kind or FailureKind.unsupported
    message = first_line(ending.message)
    extra = {name: column_value(attempt.c[name], value) for name, value in ending.columns.items()}
    values = {"ended_at": now, **extra, "status": str(as_attempt), "message": message,
              "failure_kind": str(kind) if kind else None}  # fmt: skip
    set_columns(connection, state.attempt_id, values)
    job_old = JobStatus(connection.execute(_JOB_STATE, {"id": state.job_id}).one().status)
    job_new = JobStatus.pending if ending.retry else ending.status
    ids: NewEvent = {"sweep_id": state.sweep_id, "job_id": state.job_id, "attempt_id": state.attempt_id}
    events: list[NewEvent] = [
        {**ids, "kind": "attempt", "from_status": str(old), "to_status": str(as_attempt),
         "message": note or message}
    ]  # fmt: skip
    # A job that somebody else moved on meanwhile is not ours to move, unless the result is taken in.
    if job_old is not job_new and (job_old is JobStatus.running or note is not None):
        check_job(job_old, job_new)
        reason = None if job_new in (JobStatus.ok, JobStatus.pending) else message
        connection.execute(_SET_JOB, {"id": state.job_id, "new": str(job_new), "why": reason, "now": now})
        events.append({**ids, "kind": "job", "from_status": str(job_old), "to_status": str(job_new),
                       "message": "to be tried again" if ending.retry else note})  # fmt: skip
    add_events(connection, events)
    refresh_results(connection, [state.job_id])


def _refuse(connection: Connection, state: Any, message: str) -> None:
    add_events(
        connection,
        [{"sweep_id": state.sweep_id, "job_id": state.job_id, "attempt_id": state.attempt_id,
          "kind": "note", "message": message}],
    )  # fmt: skip


def first_line(text: str | None) -> str | None:
    """One line that both databases can hold."""
    if text is None:
        return None
    lines = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8").strip().splitlines()
    return lines[0] if lines else ""
