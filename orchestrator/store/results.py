"""Keeps ``job_result`` true to the rows: recomputed whenever a job's rows or state change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select

from orchestrator.spec.axes import AXES
from orchestrator.spec.bytes import pinned_share
from orchestrator.store.bulk import replace
from orchestrator.store.figures import (
    ITERATION_COLUMNS,
    Circumstances,
    Figures,
    IterationFigures,
    Probe,
    figures,
)
from orchestrator.store.tables import attempt, iteration, job, job_result, link_probe

_ATTEMPTS = (
    select(
        attempt.c.attempt_id,
        attempt.c.job_id,
        attempt.c.number,
        attempt.c.status,
        attempt.c.overlapped,
        attempt.c.device_uuids,
        attempt.c.timed_from_at,
        attempt.c.timed_to_at,
        *(job.c[axis.name] for axis in AXES),
        job.c.ds,
        job.c.status.label("job_status"),
    )
    .join(job, job.c.job_id == attempt.c.job_id)
    .where(attempt.c.job_id.in_(bindparam("ids", expanding=True)))
)
_ITERATIONS = select(iteration.c.attempt_id, *(iteration.c[name] for name in ITERATION_COLUMNS)).where(
    iteration.c.attempt_id.in_(bindparam("ids", expanding=True))
)
_AT_ONCE = 64
"""Jobs whose iterations are held in memory together."""
_DELETE = delete(job_result).where(job_result.c.job_id == bindparam("id"))


def refresh_results(connection: Connection, job_ids: Iterable[int]) -> None:
    """Rewrite the rows of ``job_result``; a job without measurements has none."""
    for some in _split(job_ids):
        rows = computed_all(connection, some)
        without = [{"id": job_id} for job_id in some if job_id not in rows]
        if without:
            connection.execute(_DELETE, without)
        if rows:
            replace(connection, job_result, list(rows.values()))


def computed(connection: Connection, job_id: int) -> Figures | None:
    """What ``job_result`` ought to hold for the job; None if it has no measurement."""
    return computed_all(connection, [job_id]).get(job_id)


def computed_all(connection: Connection, job_ids: Sequence[int]) -> dict[int, Figures]:
    """The same for several jobs, few enough to hold their iterations in memory."""
    candidates: dict[int, list[Any]] = {}
    for one in connection.execute(_ATTEMPTS, {"ids": list(job_ids)}):
        candidates.setdefault(one.job_id, []).append(one)
    for attempts in candidates.values():
        # The successful attempt counts; without one, the newest that measured anything: taken from the end.
        attempts.sort(key=lambda row: (row.status == "ok", row.number))
    found: dict[int, Figures] = {}
    while candidates:
        turn = {job_id: attempts.pop() for job_id, attempts in candidates.items()}
        rows = _iterations(connection, [one.attempt_id for one in turn.values()])
        for job_id, one in turn.items():
            if one.attempt_id in rows:
                about = _circumstances(connection, one)
                taken = figures(rows[one.attempt_id], about)
                found[job_id] = {"job_id": job_id, "attempt_id": one.attempt_id, **taken}
        candidates = {
            job_id: attempts for job_id, attempts in candidates.items() if attempts and job_id not in found
        }
    return found


def _iterations(connection: Connection, attempt_ids: list[int]) -> dict[int, list[IterationFigures]]:
    rows: dict[int, list[IterationFigures]] = {}
    for attempt_id, *values in connection.execute(_ITERATIONS, {"ids": attempt_ids}):
        rows.setdefault(attempt_id, []).append(IterationFigures(*values))
    return rows


def _split(job_ids: Iterable[int]) -> Iterator[list[int]]:
    wanted = list(dict.fromkeys(job_ids))
    for start in range(0, len(wanted), _AT_ONCE):
        yield wanted[start : start + _AT_ONCE]


def _circumstances(connection: Connection, one: Any) -> Circumstances:
    devices = json.loads(one.device_uuids) if one.device_uuids else []
    return Circumstances(
        is_ok=one.status == "ok" and one.job_status == "ok",
        overlapped=one.overlapped,
        contention=one.contention or 1,
        device_uuids=devices,
        devices_at_once=one.num_gpus or 1,
        timed_from_at=one.timed_from_at,
        timed_to_at=one.timed_to_at,
        probes=_probes(connection, devices, one) if any(devices) and one.timed_from_at else (),
        pinned_share=_pinned_share(one) if any(devices) else 1.0,
    )


def _pinned_share(one: Any) -> float | None:
    values = {axis.name: getattr(one, axis.name) for axis in AXES}
    return pinned_share(values, json.loads(one.ds) if one.ds else {})


def _probes(connection: Connection, devices: list[str | None], one: Any) -> list[Probe]:
    """The nearest probes on either side of the timed section, of every kind and device."""
    found: list[Probe] = []
    last = one.timed_to_at or one.timed_from_at
    for device in sorted({device for device in devices if device}):
        mine = link_probe.c.device_uuid == device
        columns = [link_probe.c[name] for name in Probe.__dataclass_fields__]
        kinds = [link_probe.c[name] for name in ("pinned", "direction", "devices_at_once")]
        for values in connection.execute(select(*kinds).where(mine).distinct()).all():
            kind = and_(mine, *(column == value for column, value in zip(kinds, values, strict=True)))
            before = select(*columns).where(kind, link_probe.c.probed_at <= one.timed_from_at)
            after = select(*columns).where(kind, link_probe.c.probed_at >= last)
            for query, order in ((before, link_probe.c.probed_at.desc()), (after, link_probe.c.probed_at)):
                row = connection.execute(query.order_by(order).limit(1)).first()
                if row is not None:
                    found.append(Probe(*row))
    return found


def jobs_around(connection: Connection, probe_ids: Sequence[int]) -> list[int]:
    """Measured jobs for which one of the new probes is the nearest of its kind, before or after."""
    kind = ("device_uuid", "pinned", "direction", "devices_at_once")
    columns = [link_probe.c[name] for name in (*kind, "probed_at", "probe_id")]
    new = connection.execute(select(*columns).where(link_probe.c.probe_id.in_(probe_ids))).all()
    spans: dict[tuple[str, str, str | None, str | None], None] = {}
    for one in new:
        same = [link_probe.c[name] == getattr(one, name) for name in kind]
        others = select(func.min(link_probe.c.probed_at), func.max(link_probe.c.probed_at)).where(
            *same, link_probe.c.probe_id.not_in(probe_ids)
        )
        earlier = connection.execute(others.where(link_probe.c.probed_at < one.probed_at)).one()[1]
        later = connection.execute(others.where(link_probe.c.probed_at > one.probed_at)).one()[0]
        spans[one.device_uuid, one.probed_at, earlier, later] = None
    found: set[int] = set()
    for device, at, earlier, later in spans:
        before = attempt.c.timed_from_at >= at
        after = attempt.c.timed_to_at <= at
        near = or_(
            before if later is None else before & (attempt.c.timed_from_at < later),
            after if earlier is None else after & (attempt.c.timed_to_at > earlier),
        )
        query = (
            select(attempt.c.job_id)
            .join(job_result, job_result.c.attempt_id == attempt.c.attempt_id)
            .where(near, attempt.c.device_uuids.contains(f'"{device}"', autoescape=True))
        )
        found |= set(connection.execute(query).scalars())
    return sorted(found)
