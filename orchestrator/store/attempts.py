"""Attempts: claim a job, keep it alive. Every function runs inside one writing transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
from orchestrator.store.rows import AttemptRow, NewAttempt
from orchestrator.store.status import FailureKind, JobStatus
from orchestrator.store.tables import attempt, job
from orchestrator.store.transitions import CLAIMABLE, check_job

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
RANKS = func.coalesce(job.c.num_gpus, 1) * func.coalesce(job.c.num_nodes, 1)
_SELECTS: dict[str, Select[tuple[Any, ...]]] = {
    name: select(
        *(attempt.c[column] for column in (*_KEPT, *_READ)),
        job.c.sweep_id,
        RANKS.label("ranks"),
        (clock - attempt.c.heartbeat).label("age_s"),
    ).join(job, job.c.job_id == attempt.c.job_id)
    for name, clock in _CLOCKS.items()
}
_BY_ID = {name: query.where(attempt.c.attempt_id == bindparam("id")) for name, query in _SELECTS.items()}
_UIDS = select(attempt.c.attempt_id, attempt.c.uid).where(
    attempt.c.attempt_id.in_(bindparam("ids", expanding=True))
)
_BY_IDS = {
    name: query.where(attempt.c.attempt_id.in_(bindparam("ids", expanding=True)))
    for name, query in _SELECTS.items()
}
_JOB_STATES = (
    select(job.c.job_id, job.c.status, job.c.sweep_id)
    .where(job.c.job_id.in_(bindparam("ids", expanding=True)))
    .order_by(job.c.job_id)
    .with_for_update()
)
_LAST_NUMBERS = (
    select(attempt.c.job_id, func.max(attempt.c.number))
    .where(attempt.c.job_id.in_(bindparam("ids", expanding=True)))
    .group_by(attempt.c.job_id)
)
SET_JOB = (
    update(job)
    .where(job.c.job_id == bindparam("id"))
    .values(status=bindparam("new"), reason=bindparam("why"), updated_at=bindparam("now"))
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
    return uids_of(connection, [attempt_id]).get(attempt_id)


def uids_of(connection: Connection, attempt_ids: Sequence[int]) -> dict[int, str]:
    """The uids of those that there are."""
    return {row.attempt_id: row.uid for row in connection.execute(_UIDS, {"ids": list(attempt_ids)})}


def set_columns(
    connection: Connection, attempt_id: int, values: Mapping[str, Any], *, keep: frozenset[str] = frozenset()
) -> None:
    """Set columns of the attempt to values that fit; those in ``keep`` only where they are NULL."""
    set_columns_of(connection, {attempt_id: values}, keep=keep)


def set_columns_of(
    connection: Connection,
    values: Mapping[int, Mapping[str, Any]],
    *,
    keep: frozenset[str] = frozenset(),
) -> None:
    """The same for several attempts; those with the same columns share a statement."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for attempt_id, columns in values.items():
        if columns:
            bound = {f"new_{name}": value for name, value in columns.items()}
            groups.setdefault(tuple(columns), []).append({"id": attempt_id, **bound})
    for names, rows in groups.items():
        connection.execute(_setter(names, keep), rows)


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
    return begin_all(connection, [(job_id, new)], only)[0]


def begin_all(
    connection: Connection,
    wanted: Sequence[tuple[int, NewAttempt]],
    only: frozenset[JobStatus] = CLAIMABLE,
) -> list[AttemptRow | None]:
    """The same for several, by as many statements as for one."""
    ids = {"ids": [job_id for job_id, _ in wanted]}
    states = {row.job_id: row for row in connection.execute(_JOB_STATES, ids)}
    claimed: dict[int, NewAttempt] = {}
    for job_id, new in wanted:
        state = states.get(job_id)
        if state is not None and job_id not in claimed and state.status in only:
            check_job(JobStatus(state.status), JobStatus.running)
            claimed[job_id] = new
    begun = _insert_attempts(connection, claimed, states) if claimed else {}
    return [
        begun.get(new.uid) or _begun_before(connection, states.get(job_id), new) for job_id, new in wanted
    ]


def _begun_before(connection: Connection, state: Any, new: NewAttempt) -> AttemptRow | None:
    if state is None or state.status != JobStatus.running:
        return None
    again = find_attempts(connection, attempt.c.uid == new.uid, attempt.c.status == JobStatus.running)
    return again[0] if again else None


def _insert_attempts(
    connection: Connection, claimed: Mapping[int, NewAttempt], states: Mapping[int, Any]
) -> dict[str, AttemptRow]:
    """Attempts of jobs that may have one, by uid; the jobs run now."""
    numbers = {
        job_id: int(last) for job_id, last in connection.execute(_LAST_NUMBERS, {"ids": list(claimed)})
    }
    first, now = take_ids(connection, "attempt", len(claimed)), utc_now()
    rows, moves, events = [], [], list[NewEvent]()
    for attempt_id, (job_id, new) in enumerate(claimed.items(), start=first):
        rows.append(
            {
                "attempt_id": attempt_id,
                "uid": new.uid,
                "job_id": job_id,
                "number": numbers.get(job_id, 0) + 1,
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
            }
        )
        moves.append({"id": job_id, "new": "running", "why": None, "now": now})
        state = states[job_id]
        events.append(
            {"sweep_id": state.sweep_id, "job_id": job_id, "attempt_id": attempt_id, "kind": "job",
             "from_status": state.status, "to_status": "running"}
        )  # fmt: skip
    dialect = connection.dialect.name
    connection.execute(_INSERTS[dialect], rows)
    connection.execute(SET_JOB, moves)
    add_events(connection, events)
    found = connection.execute(_BY_IDS[dialect], {"ids": [row["attempt_id"] for row in rows]})
    return {row.uid: row for row in map(attempt_row, found)}


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
