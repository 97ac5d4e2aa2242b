"""Link probes in, and the results that they change."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from orchestrator.store.bulk import insert_new
from orchestrator.store.clock import normal_utc, utc_now
from orchestrator.store.coerce import fitters
from orchestrator.store.ids import take_ids
from orchestrator.store.results import jobs_around, refresh_results
from orchestrator.store.rows import ProbeRow
from orchestrator.store.tables import link_probe

_COLUMNS = [column.name for column in link_probe.c if column.name not in ("probe_id", "uid")]


def put_probes(connection: Connection, probes: Sequence[ProbeRow], uids: Sequence[str]) -> list[int]:
    """Store the probes; returns the jobs whose share of the link they changed. Safe to repeat."""
    there = set(connection.execute(select(link_probe.c.uid).where(link_probe.c.uid.in_(uids))).scalars())
    new = [(probe, uid) for probe, uid in zip(probes, uids, strict=True) if uid not in there]
    if not new:
        return []
    first, fit, rows = take_ids(connection, "link_probe", len(new)), fitters(link_probe), []
    for place, (probe, uid) in enumerate(new):
        row = {name: fit[name](getattr(probe, name)) for name in _COLUMNS if name != "probed_at"}
        at = normal_utc(probe.probed_at) if probe.probed_at else utc_now()
        rows.append({**row, "probe_id": first + place, "uid": uid, "probed_at": at})
    insert_new(connection, link_probe, rows)
    changed = jobs_around(connection, range(first, first + len(new)))
    refresh_results(connection, changed)
    return changed
