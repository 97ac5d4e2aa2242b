"""Sweeps: put a plan into the database, or continue it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, insert, select, update

from orchestrator.errors import OrchError
from orchestrator.spec.axes import AXES
from orchestrator.spec.cell import canonical_json
from orchestrator.store.clock import utc_now
from orchestrator.store.ids import add_events, take_ids
from orchestrator.store.rows import SweepChange, SweepRow
from orchestrator.store.tables import job, sweep

if TYPE_CHECKING:
    from orchestrator.spec.bytes import Prediction
    from orchestrator.spec.cell import Cell
    from orchestrator.spec.plan import Plan


def new_uid() -> str:
    """An identity that survives merging databases."""
    return uuid.uuid4().hex


def put_sweep(
    connection: Connection, plan: Plan, predictions: Mapping[str, Prediction], owner: str | None
) -> SweepChange:
    """Write the plan: new jobs are added, those no longer asked for are marked, nothing is deleted."""
    found = connection.execute(select(sweep).where(sweep.c.name == plan.name).with_for_update()).first()
    now = utc_now()
    given = {
        "spec": plan.source,
        "spec_path": plan.path,
        "engine": plan.engine.name,
        "updated_at": now,
        "cancel_requested": False,
        "owner": owner,
    }
    if found is None:
        sweep_id = take_ids(connection, "sweep")
        connection.execute(
            insert(sweep),
            {**given, "sweep_id": sweep_id, "uid": new_uid(), "name": plan.name, "created_at": now},
        )
        add_events(connection, [{"sweep_id": sweep_id, "kind": "sweep", "message": "created"}])
    else:
        sweep_id = found.sweep_id
        connection.execute(update(sweep).where(sweep.c.sweep_id == sweep_id).values(**given))
        add_events(connection, [{"sweep_id": sweep_id, "kind": "sweep", "message": "continued"}])
    return _put_jobs(connection, sweep_id, plan, predictions, now)


def _put_jobs(
    connection: Connection, sweep_id: int, plan: Plan, predictions: Mapping[str, Prediction], now: str
) -> SweepChange:
    query = select(job.c.job_id, job.c.cell, job.c.repeat, job.c.position, job.c.in_spec).where(
        job.c.sweep_id == sweep_id
    )
    there = {(row.cell, row.repeat): row for row in connection.execute(query)}
    planned = {(item.cell.key, item.repeat): item for item in plan.jobs}
    new = [item for key, item in planned.items() if key not in there]
    columns = {item.cell.key: cell_columns(item.cell, predictions.get(item.cell.key)) for item in new}
    if new:
        first = take_ids(connection, "job", len(new))
        common = {"sweep_id": sweep_id, "status": "pending", "reason": None, "in_spec": True,
                  "created_at": now, "updated_at": now}  # fmt: skip
        connection.execute(
            insert(job),
            [
                {"job_id": first + i, "uid": new_uid(), "repeat": item.repeat, "position": item.position,
                 **common, **columns[item.cell.key]}
                for i, item in enumerate(new)
            ],
        )  # fmt: skip
    moved, gone, vanished = [], [], dict[str, int]()
    for key, row in there.items():
        planned_job = planned.get(key)
        if planned_job is None:
            vanished[row.cell] = vanished.get(row.cell, 0) + 1
            if row.in_spec:
                gone.append({"id": row.job_id, "place": row.position, "asked": False})
        elif row.position != planned_job.position or not row.in_spec:
            moved.append({"id": row.job_id, "place": planned_job.position, "asked": True})
    if moved or gone:
        connection.execute(_MOVE, moved + gone)
    return SweepChange(
        sweep_id,
        plan.name,
        added=len(new),
        kept=len(planned) - len(new),
        vanished=tuple(vanished),
        warnings=_warnings(len(gone), plan),
    )


_MOVE = (
    update(job)
    .where(job.c.job_id == bindparam("id"))
    .values(position=bindparam("place"), in_spec=bindparam("asked"))
)


def _warnings(gone: int, plan: Plan) -> tuple[str, ...]:
    if not gone:
        return ()
    jobs = "1 job of it is" if gone == 1 else f"{gone} jobs of it are"
    return (f"sweep {plan.name}: {jobs} no longer in the sweep file; results stay, nothing of them is run",)


def cell_columns(cell: Cell, prediction: Prediction | None = None) -> dict[str, Any]:
    """The columns of ``job`` that a cell and its prediction fill."""
    columns: dict[str, Any] = {axis.name: cell.values[axis.name] for axis in AXES}
    columns["cell"] = cell.key
    columns["ds"] = canonical_json(cell.ds) if cell.ds else None
    columns["env"] = json.dumps(dict(cell.env), sort_keys=True) if cell.env else None
    columns["parameters_total"] = prediction.parameters_total if prediction else None
    for name in ("gpu_bytes", "freed_bytes", "copied_bytes", "pinned_bytes"):
        columns[f"predicted_{name}"] = getattr(prediction, name) if prediction else None
    return columns


def stored_spec(connection: Connection, name: str) -> str | None:
    """The text of the sweep file as last run; None if there is no such sweep."""
    return connection.execute(select(sweep.c.spec).where(sweep.c.name == name)).scalar_one_or_none()


def sweep_names(connection: Connection) -> list[str]:
    """Every sweep, the one that was run last first."""
    query = select(sweep.c.name).order_by(sweep.c.updated_at.desc(), sweep.c.sweep_id.desc())
    return list(connection.execute(query).scalars())


def find_sweep(connection: Connection, name: str | None) -> SweepRow:
    """The sweep of that name; None = the one that was run last.

    Raises:
        OrchError: there is none, with the names there are.
    """
    names = sweep_names(connection)
    if not names:
        raise OrchError("there is no sweep in this database yet", "", "run one: orch sweep SPEC")
    wanted = names[0] if name is None else name
    row = connection.execute(select(sweep).where(sweep.c.name == wanted)).first()
    if row is None:
        raise OrchError(
            f"there is no sweep '{wanted}' in this database", "", f"there are: {', '.join(names[:10])}"
        )
    return SweepRow(**row._mapping)


def request_cancel(connection: Connection, name: str) -> SweepRow:
    """Ask whoever runs the sweep to stop."""
    found = find_sweep(connection, name)
    connection.execute(update(sweep).where(sweep.c.sweep_id == found.sweep_id).values(cancel_requested=True))
    add_events(connection, [{"sweep_id": found.sweep_id, "kind": "sweep", "message": "cancel requested"}])
    return found


def cancel_requested(connection: Connection, sweep_id: int) -> bool:
    """Whether somebody asked to stop the sweep."""
    query = select(sweep.c.cancel_requested).where(sweep.c.sweep_id == sweep_id)
    return bool(connection.execute(query).scalar_one_or_none())


def set_owner(connection: Connection, sweep_id: int, owner: str | None) -> None:
    """Record who runs the sweep now."""
    connection.execute(update(sweep).where(sweep.c.sweep_id == sweep_id).values(owner=owner))
