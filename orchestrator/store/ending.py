"""The end of attempts: their last columns, their jobs' new status, events, results. In one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from orchestrator.store.attempts import RANKS, SET_JOB, set_columns_of
from orchestrator.store.clock import utc_now
from orchestrator.store.coerce import column_value
from orchestrator.store.ids import NewEvent, add_events
from orchestrator.store.results import refresh_results
from orchestrator.store.rows import AttemptEnd
from orchestrator.store.status import FailureKind, JobStatus
from orchestrator.store.tables import attempt, attempt_rank, job
from orchestrator.store.transitions import check_attempt, check_job

_STATES = (
    select(
        attempt.c.attempt_id,
        attempt.c.job_id,
        attempt.c.number,
        attempt.c.status,
        job.c.sweep_id,
        job.c.status.label("job_status"),
        RANKS.label("ranks"),
        select(func.count(attempt_rank.c.final_at))
        .where(attempt_rank.c.attempt_id == attempt.c.attempt_id)
        .scalar_subquery()
        .label("delivered"),
    )
    .join(job, job.c.job_id == attempt.c.job_id)
    .where(attempt.c.attempt_id.in_(bindparam("ids", expanding=True)))
    .order_by(attempt.c.attempt_id)
    .with_for_update()
)
_LAST_NUMBER = select(func.max(attempt.c.number)).where(attempt.c.job_id == bindparam("id"))


def end(connection: Connection, ending: AttemptEnd) -> bool:
    """End a running attempt and move its job; False, with an event, if it is no longer running.

    Safe to repeat: ending an attempt as what it already is changes nothing and gives True.
    """
    return end_all(connection, [ending])[0]


def end_all(
    connection: Connection, endings: Sequence[AttemptEnd], spooled: Collection[int] = ()
) -> list[bool]:
    """The same for several, by as many statements as for one.

    The spools of the attempts in ``spooled`` have been taken in: one of them that is to be ok although a
    final record is missing has lost its spool meanwhile, and is no_result.
    """
    ids = [ending.attempt_id for ending in endings]
    states = {row.attempt_id: row for row in connection.execute(_STATES, {"ids": ids})}
    done: list[bool] = []
    changes = _Changes()
    for ending in endings:
        state = states.get(ending.attempt_id)
        if state is None:
            done.append(False)
            continue
        if ending.attempt_id in spooled and state.delivered < state.ranks:
            ending = _without_records(ending)
        old, as_attempt = JobStatus(state.status), _as_attempt(ending.status)
        if old is JobStatus.running and ending.attempt_id not in changes.columns:
            changes.finish(state, ending)
        elif old is not as_attempt:
            changes.refuse(state, f"late change to {ending.status} refused: the attempt is {old} already")
        done.append(old in (JobStatus.running, as_attempt))
    changes.write(connection)
    return done


def _without_records(ending: AttemptEnd) -> AttemptEnd:
    if ending.status is not JobStatus.ok:
        return ending
    message = "a rank's final record is not in its spool any more"
    return replace(ending, status=JobStatus.failed, failure_kind=FailureKind.no_result, message=message)


def adopt_as_ok(connection: Connection, attempt_id: int, message: str) -> bool:
    """Make a running, lost or cancelled attempt ok, since every rank delivered; its job too if it may."""
    state = connection.execute(_STATES, {"ids": [attempt_id]}).first()
    if state is None or state.status not in ("running", "lost", "cancelled"):
        return False
    if state.job_status not in ("running", "pending", "lost", "cancelled"):
        return False
    newest = connection.execute(_LAST_NUMBER, {"id": state.job_id}).scalar_one()
    if state.job_status == "running" and state.number != newest:
        return False
    changes = _Changes()
    changes.finish(state, AttemptEnd(attempt_id, JobStatus.ok), message)
    changes.write(connection)
    return True


def _as_attempt(status: JobStatus) -> JobStatus:
    return JobStatus.failed if status is JobStatus.skipped else status


class _Changes:
    """What is to be written, gathered so that each table is written once."""

    def __init__(self) -> None:
        self.columns: dict[int, Mapping[str, Any]] = {}
        self._now = utc_now()
        self._moves: list[dict[str, Any]] = []
        self._events: list[NewEvent] = []
        self._jobs: list[int] = []

    def finish(self, state: Any, ending: AttemptEnd, note: str | None = None) -> None:
        """End the attempt; ``note`` says why its result is taken in although others have moved the job."""
        old, new = JobStatus(state.status), _as_attempt(ending.status)
        check_attempt(old, new)
        kind = ending.failure_kind
        if ending.status is JobStatus.skipped:
            kind = kind or FailureKind.unsupported
        message = first_line(ending.message)
        extra = {name: column_value(attempt.c[name], value) for name, value in ending.columns.items()}
        self.columns[state.attempt_id] = {
            "ended_at": self._now, **extra, "status": str(new), "message": message,
            "failure_kind": str(kind) if kind else None,
        }  # fmt: skip
        ids: NewEvent = {"sweep_id": state.sweep_id, "job_id": state.job_id, "attempt_id": state.attempt_id}
        self._events.append(
            {**ids, "kind": "attempt", "from_status": str(old), "to_status": str(new),
             "message": note or message}
        )  # fmt: skip
        job_old = JobStatus(state.job_status)
        job_new = JobStatus.pending if ending.retry else ending.status
        # A job that somebody else moved on meanwhile is not ours to move, unless the result is taken in.
        if job_old is not job_new and (job_old is JobStatus.running or note is not None):
            check_job(job_old, job_new)
            reason = None if job_new in (JobStatus.ok, JobStatus.pending) else message
            self._moves.append({"id": state.job_id, "new": str(job_new), "why": reason, "now": self._now})
            self._events.append(
                {**ids, "kind": "job", "from_status": str(job_old), "to_status": str(job_new),
                 "message": "to be tried again" if ending.retry else note}
            )  # fmt: skip
        self._jobs.append(state.job_id)

    def refuse(self, state: Any, message: str) -> None:
        """Change nothing, and say so."""
        self._events.append(
            {"sweep_id": state.sweep_id, "job_id": state.job_id, "attempt_id": state.attempt_id,
             "kind": "note", "message": message}
        )  # fmt: skip

    def write(self, connection: Connection) -> None:
        """Write all of it."""
        set_columns_of(connection, self.columns)
        if self._moves:
            connection.execute(SET_JOB, self._moves)
        add_events(connection, self._events)
        refresh_results(connection, self._jobs)


def first_line(text: str | None) -> str | None:
    """One line that both databases can hold."""
    if text is None:
        return None
    lines = text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8").strip().splitlines()
    return lines[0] if lines else ""
