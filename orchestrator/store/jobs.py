"""Jobs: which are to be run, which is meant, which cannot run here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, or_, select, update

from orchestrator.errors import OrchError
from orchestrator.spec.axes import AXES
from orchestrator.spec.cell import Cell
from orchestrator.store.clock import utc_now
from orchestrator.store.ids import NewEvent, add_events
from orchestrator.store.rows import JobRow
from orchestrator.store.status import AGAIN_BY_DEFAULT, AGAIN_IF_ASKED, JobStatus
from orchestrator.store.tables import attempt, environment, job, sweep
from orchestrator.store.transitions import check_job

_ATTEMPTS = (
    select(func.count()).select_from(attempt).where(attempt.c.job_id == job.c.job_id).scalar_subquery()
)
JOB_SELECT: Select[tuple[object, ...]] = select(*job.c, _ATTEMPTS.label("attempts"))


def job_row(row: Row[tuple[object, ...]], cells: dict[str, Cell] | None = None) -> JobRow:
    """A row of ``JOB_SELECT`` with its cell rebuilt; ``cells``, by key, lets the repeats of one share it."""
    of = row._mapping
    cell = None if cells is None else cells.get(of["cell"])
    if cell is None:
        cell = Cell(
            values={axis.name: of[axis.name] for axis in AXES},
            ds=json.loads(of["ds"]) if of["ds"] else {},
            env=json.loads(of["env"]) if of["env"] else {},
            key=of["cell"],
        )
        if cells is not None:
            cells[cell.key] = cell
    return JobRow(
        job_id=of["job_id"],
        uid=of["uid"],
        sweep_id=of["sweep_id"],
        cell=cell.key,
        repeat=of["repeat"],
        position=of["position"],
        status=JobStatus(of["status"]),
        reason=of["reason"],
        in_spec=of["in_spec"],
        attempts=of["attempts"],
        cell_values=cell,
        parameters_total=of["parameters_total"],
        predicted_gpu_bytes=of["predicted_gpu_bytes"],
        predicted_freed_bytes=of["predicted_freed_bytes"],
        predicted_copied_bytes=of["predicted_copied_bytes"],
        predicted_pinned_bytes=of["predicted_pinned_bytes"],
    )


def runnable(connection: Connection, sweep_id: int, *, retry_failed: bool) -> list[JobRow]:
    """Jobs to run, in running order: those never run, cancelled or lost, and the failed ones if asked."""
    again = AGAIN_BY_DEFAULT | (AGAIN_IF_ASKED if retry_failed else frozenset())
    rows = jobs(connection, sweep_id, again)
    elsewhere = _sweeps_with_cells_of(connection, sweep_id)
    if not rows or not elsewhere:
        return rows
    name = connection.execute(select(sweep.c.name).where(sweep.c.sweep_id == sweep_id)).scalar_one()
    return [replace(row, sweep=name, also_in=tuple(elsewhere.get(row.cell, ()))) for row in rows]


def _sweeps_with_cells_of(connection: Connection, sweep_id: int) -> dict[str, list[str]]:
    """Cells of the sweep that other sweeps have, too, with the names of these."""
    own = select(job.c.cell).where(job.c.sweep_id == sweep_id)
    query = (
        select(job.c.cell, sweep.c.name)
        .join(sweep, sweep.c.sweep_id == job.c.sweep_id)
        .where(job.c.sweep_id != sweep_id, job.c.cell.in_(own))
        .distinct()
        .order_by(sweep.c.name)
    )
    found: dict[str, list[str]] = {}
    for cell, name in connection.execute(query):
        found.setdefault(cell, []).append(name)
    return found


def jobs(
    connection: Connection, sweep_id: int, statuses: Iterable[JobStatus] | None = None, *, gone: bool = False
) -> list[JobRow]:
    """Jobs of the sweep, in running order; ``gone``: also those that the sweep file no longer asks for."""
    query = JOB_SELECT.where(job.c.sweep_id == sweep_id).order_by(job.c.position, job.c.job_id)
    if statuses is not None:
        query = query.where(job.c.status.in_([str(status) for status in statuses]))
    if not gone:
        query = query.where(job.c.in_spec)
    cells: dict[str, Cell] = {}
    return [job_row(row, cells) for row in connection.execute(query)]


def first_pending(
    connection: Connection, sweep_id: int, many: int, after: JobRow | None = None
) -> list[JobRow]:
    """The first pending jobs in running order, behind ``after``."""
    query = JOB_SELECT.where(job.c.sweep_id == sweep_id, job.c.status == "pending", job.c.in_spec)
    if after is not None:
        query = query.where(job.c.position > after.position)
    query = query.order_by(job.c.position).limit(many)
    return [job_row(row) for row in connection.execute(query)]


def counts(connection: Connection, sweep_id: int) -> dict[JobStatus, int]:
    """Jobs by status, every status; those that vanished from the sweep file count only while they run."""
    counted = or_(job.c.in_spec, job.c.status == JobStatus.running)
    query = (
        select(job.c.status, func.count()).where(job.c.sweep_id == sweep_id, counted).group_by(job.c.status)
    )
    found = {str(row[0]): int(row[1]) for row in connection.execute(query)}
    return {status: found.get(str(status), 0) for status in JobStatus}


def weigh(connection: Connection, skip: Sequence[tuple[int, str]], unskip: Sequence[int]) -> None:
    """Mark jobs as skipped for a reason, or as pending again; running and ok ones stay."""
    reasons = dict(skip)
    wanted = sorted({*reasons, *unskip})
    now, changes, events = utc_now(), [], list[NewEvent]()
    for start in range(0, len(wanted), 500):
        query = select(job.c.job_id, job.c.sweep_id, job.c.status, job.c.reason).where(
            job.c.job_id.in_(wanted[start : start + 500])
        )
        for job_id, sweep_id, text, reason in connection.execute(query.with_for_update()).all():
            old = JobStatus(text)
            new = JobStatus.skipped if job_id in reasons else JobStatus.pending
            if old in (JobStatus.running, JobStatus.ok) or (old is new and reason == reasons.get(job_id)):
                continue
            if old is not new:
                if new is JobStatus.pending and old is not JobStatus.skipped:
                    continue
                check_job(old, new)
            changes.append({"id": job_id, "new": str(new), "why": reasons.get(job_id), "now": now})
            events.append(
                {"sweep_id": sweep_id, "job_id": job_id, "kind": "job", "from_status": str(old),
                 "to_status": str(new), "message": reasons.get(job_id)}
            )  # fmt: skip
    if changes:
        connection.execute(_SET, changes)
        add_events(connection, events)


_SET = (
    update(job)
    .where(job.c.job_id == bindparam("id"))
    .values(status=bindparam("new"), reason=bindparam("why"), updated_at=bindparam("now"))
)


def requeue(connection: Connection, sweep_id: int, *, retry_failed: bool) -> int:
    """Make every job that continuing the sweep runs pending; returns how many were not. For pilots."""
    now, events = utc_now(), list[NewEvent]()
    changes = []
    for row in runnable(connection, sweep_id, retry_failed=retry_failed):
        if row.status is JobStatus.pending:
            continue
        check_job(row.status, JobStatus.pending)
        changes.append({"id": row.job_id, "new": "pending", "why": None, "now": now})
        events.append(
            {"sweep_id": sweep_id, "job_id": row.job_id, "kind": "job", "from_status": str(row.status),
             "to_status": "pending", "message": "to be run again"}
        )  # fmt: skip
    if changes:
        connection.execute(_SET, changes)
        add_events(connection, events)
    return len(changes)


def find_job(connection: Connection, text: str, sweep_name: str | None = None) -> JobRow:
    """The job that a job id, the start of a job's uid, ``CELL6`` or ``CELL6/REPEAT`` means.

    Within the sweep of that name, else within the sweep that was run last and has such a job.

    Raises:
        OrchError: there is none, or several.
    """
    query = JOB_SELECT.join(sweep, sweep.c.sweep_id == job.c.sweep_id)
    if sweep_name is not None:
        query = query.where(sweep.c.name == sweep_name)
    if text.isdigit() and int(text) < 2**31:
        found = connection.execute(query.where(job.c.job_id == int(text))).first()
        if found is not None:
            return job_row(found)
    name, slash, repeat = text.removeprefix("v1:").partition("/")
    start = name.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
    match: ColumnElement[bool] = job.c.cell.like(f"v1:{start}%", escape="\\")
    if slash:
        match = match & (job.c.repeat == (int(repeat) if repeat.isdecimal() and len(repeat) < 10 else -1))
    else:
        match = or_(match, job.c.uid.like(f"{start}%", escape="\\"))
    order = (sweep.c.updated_at.desc(), job.c.sweep_id.desc(), job.c.repeat, job.c.job_id)
    rows = [job_row(row) for row in connection.execute(query.where(match).order_by(*order))] if name else []
    sweeps = list(dict.fromkeys(row.sweep_id for row in rows))
    rows = [row for row in rows if row.sweep_id == sweeps[0]]
    if not rows:
        raise OrchError(
            f"there is no job '{text}' in this database", "", "see orch status or orch report --per job"
        )
    if len({row.cell for row in rows}) > 1:
        some = ", ".join(_apart(list({row.cell: row for row in reversed(rows)}.values())[::-1][:6]))
        raise OrchError(f"'{text}' means {len(rows)} jobs", "", f"name one of them: {some}")
    query_names = select(sweep.c.sweep_id, sweep.c.name).where(sweep.c.sweep_id.in_(sweeps))
    names = {row.sweep_id: row.name for row in connection.execute(query_names)}
    return replace(rows[0], sweep=names[sweeps[0]], also_in=tuple(names[one] for one in sweeps[1:]))


def _apart(rows: Sequence[JobRow]) -> list[str]:
    """Labels of jobs of different cells, with as many digits as tell the cells apart."""
    digits = [row.cell.removeprefix("v1:") for row in rows]
    many = next(n for n in range(6, 65) if len({text[:n] for text in digits}) == len(rows))
    return [f"{text[:many]}/{row.repeat}" for text, row in zip(digits, rows, strict=True)]


def accelerator_of(connection: Connection, job_id: int) -> str | None:
    """``cuda`` or ``cpu``, on which the job last ran; None if it never did."""
    query = (
        select(environment.c.accelerator)
        .join(attempt, attempt.c.environment_id == environment.c.environment_id)
        .where(attempt.c.job_id == job_id)
        .order_by(attempt.c.number.desc())
        .limit(1)
    )
    return connection.execute(query).scalar_one_or_none()
