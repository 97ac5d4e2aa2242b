"""The metadata file with which Datasette shows a results database well."""

from __future__ import annotations

from typing import Any

from orchestrator.store.schemadoc import schema_docs, unit_of
from orchestrator.store.tables import job, job_result

_BEST = """
SELECT sweep, model, nlayers, hidden_dim, dtype, zero_stage, num_gpus, included_state, pin_memory,
       non_blocking, reload_non_blocking, gc_freeze, offload_s_median, reload_s_median,
       offload_gbps, reload_gbps
FROM best_setting ORDER BY sweep, hidden_dim, nlayers
"""

_PINNING = """
SELECT p.sweep, p.hidden_dim, p.nlayers, p.dtype, p.zero_stage, p.offload_cold_s, p.cold_pinning_s,
       p.offload_s_median AS pinned_s,
       u.offload_s_median AS pageable_s,
       CASE WHEN p.offload_cold_s + p.reload_cold_s <= u.offload_cold_s + u.reload_cold_s THEN 1
            ELSE 1 + (p.offload_cold_s + p.reload_cold_s - u.offload_cold_s - u.reload_cold_s)
                 / (u.offload_s_median + u.reload_s_median - p.offload_s_median - p.reload_s_median) END
           AS cycles_to_pay
FROM job_summary p JOIN job_summary u
    ON u.sweep_id = p.sweep_id AND u.hidden_dim = p.hidden_dim AND u.nlayers = p.nlayers
    AND u.model = p.model AND u.dtype = p.dtype AND u.zero_stage = p.zero_stage AND u.num_gpus = p.num_gpus
    AND u.included_state = p.included_state AND u.repeat = p.repeat AND u.non_blocking = p.non_blocking
    AND u.gc_freeze = p.gc_freeze
WHERE NOT u.pin_memory AND p.pin_memory AND u.is_valid AND p.is_valid
    AND u.offload_s_median + u.reload_s_median > p.offload_s_median + p.reload_s_median
"""

_NOT_OK = """
SELECT sweep, cell, repeat, status, failure_kind, COALESCE(message, reason) AS why
FROM job_summary WHERE status NOT IN ('ok', 'pending', 'running') ORDER BY sweep, position
"""

_FLAGGED = """
SELECT sweep, cell, repeat, bytes_match, overlapped, probe_drift_share, offload_link_share, reload_link_share
FROM job_summary WHERE status = 'ok' AND NOT is_valid
"""

_SLOWEST = """
SELECT sweep, cell, offload_slowest_rank AS rank, COUNT(*) AS jobs
FROM job_summary WHERE offload_slowest_rank IS NOT NULL AND ranks > 1
GROUP BY sweep, cell, offload_slowest_rank
"""

QUERIES = {
    "fastest_setting": ("The setting with the shortest offload + reload, for each size", _BEST),
    "pinning_cost": ("What the first offload costs, and after how many cycles pinning has paid", _PINNING),
    "not_ok": ("Jobs without a result, and why", _NOT_OK),
    "flagged": ("Results kept out of best_setting, and the flags", _FLAGGED),
    "slowest_rank": ("Which rank is last, and how often", _SLOWEST),
}
"""Name -> title and query; each runs on SQLite and PostgreSQL."""

_PINT = {"s": "s", "B": "byte", "GB/s": "gigabyte/s", "ns": "ns", "1/s": "1/s"}


def metadata(database: str) -> dict[str, Any]:
    """Titles, descriptions, units and canned queries; ``database`` is the name Datasette gives the file."""
    docs = schema_docs()
    described = {column.name: column.text for doc in docs for column in doc.columns if column.text}
    tables: dict[str, Any] = {}
    for doc in docs:
        if doc.name in ("alembic_version", "counter"):
            tables[doc.name] = {"hidden": True}
            continue
        if doc.is_view:
            names = [*job.c.keys(), *job_result.c.keys()]
            columns = {name: described[name] for name in names if name in described}
        else:
            names = [column.name for column in doc.columns]
            columns = {column.name: column.text for column in doc.columns if column.text}
        units = {name: _PINT[unit] for name in names if (unit := unit_of(name))}
        tables[doc.name] = {"description": doc.text, "columns": columns, "units": units}
    queries = {name: {"title": title, "sql": sql.strip()} for name, (title, sql) in QUERIES.items()}
    return {
        "title": "orch: what it costs to put a DeepSpeed engine to sleep and wake it up",
        "description": "Times are seconds, sizes bytes, speeds 10^9 bytes per second; NULL is not measured.",
        "databases": {database: {"tables": tables, "queries": queries}},
    }
