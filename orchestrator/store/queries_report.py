"""The reads behind ``orch report``: plain rows, nothing of SQLAlchemy leaves.

Every query is a constant; values are bound. Both databases run the same text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from orchestrator.spec.axes import AXES, AxisType

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from orchestrator.store.rows import SweepRow

Value = bool | int | float | str | None
Parameter = int | float | str | bool | None
T = TypeVar("T")

_FLAGS = (
    "in_spec is_valid states_intact devices_ok bytes_match overlapped is_warmup is_cold is_instrumented "
    "skipped_step cancel_requested pinned"
)
BOOLEAN_COLUMNS = frozenset(_FLAGS.split()) | {a.name for a in AXES if a.type is AxisType.BOOLEAN}
"""Columns that SQLite hands out as 0 and 1."""


class Reads(Protocol):
    """What of the store is needed here."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """What ``work`` makes of a connection in a transaction that only reads."""
        ...

    def sweep(self, name: str | None = None) -> SweepRow:
        """The sweep of that name; None = the one that was run last."""
        ...

    def sweep_names(self) -> list[str]:
        """Every sweep's name, the one that was run last first."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A query's result."""

    columns: tuple[str, ...]
    values: list[tuple[Value, ...]] = field(default_factory=list)

    def dicts(self) -> list[dict[str, Value]]:
        """Each row by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.values]


def fetch(store: Reads, query: str, **parameters: Parameter) -> Rows:
    """Run one of the constants below and return everything it gives."""
    from sqlalchemy import text

    def work(connection: Connection) -> Rows:
        result = connection.execute(text(query), parameters)
        columns = tuple(str(name) for name in result.keys())  # noqa: SIM118
        return Rows(columns, _with_booleans(columns, [tuple(row) for row in result]))

    return store.read(work)


def _with_booleans(columns: Sequence[str], rows: list[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    places = [number for number, name in enumerate(columns) if name in BOOLEAN_COLUMNS]
    if not rows or not places:
        return rows
    if not any(type(row[place]) is int for place in places for row in rows[:50]) and all(
        isinstance(row[place], bool) or row[place] is None for row in rows for place in places
    ):
        return rows
    fixed = []
    for row in rows:
        changed = list(row)
        for place in places:
            if changed[place] is not None:
                changed[place] = bool(changed[place])
        fixed.append(tuple(changed))
    return fixed


_JOBS = "SELECT * FROM job_summary WHERE sweep_id = :sweep_id ORDER BY position, job_id"


def job_rows(store: Reads, sweep_id: int) -> Rows:
    """Every job of the sweep, whatever its status, in running order: all columns of ``job_summary``."""
    return fetch(store, _JOBS, sweep_id=sweep_id)


_ITERATIONS = """
SELECT j.cell, j.job_id, j.repeat, a.number AS attempt, a.status AS attempt_status, i.*
FROM iteration i JOIN attempt a ON a.attempt_id = i.attempt_id JOIN job j ON j.job_id = a.job_id
WHERE j.sweep_id = :sweep_id AND j.job_id BETWEEN :first AND :last
ORDER BY j.job_id, a.number, i.rank, i.iteration
"""
_JOB_IDS = "SELECT job_id FROM job WHERE sweep_id = :sweep_id ORDER BY job_id"


def iteration_rows(
    store: Reads, sweep_id: int, block: int = 200
) -> tuple[tuple[str, ...], Iterator[tuple[Value, ...]]]:
    """Every iteration of every rank and attempt, read in blocks of jobs; a NaN is NaN again."""
    ids = [int(str(row[0])) for row in fetch(store, _JOB_IDS, sweep_id=sweep_id).values]
    columns = fetch(store, _ITERATIONS, sweep_id=sweep_id, first=0, last=-1).columns

    def stream() -> Iterator[tuple[Value, ...]]:
        for start in range(0, len(ids), block):
            last = ids[min(start + block, len(ids)) - 1]
            rows = fetch(store, _ITERATIONS, sweep_id=sweep_id, first=ids[start], last=last)
            for row in rows.values:
                yield with_nonfinite(columns, row)

    return columns, stream()


def with_nonfinite(columns: Sequence[str], row: tuple[Value, ...]) -> tuple[Value, ...]:
    """The row with each value that ``nonfinite`` names (``loss=nan``) put back in its place."""
    if "nonfinite" not in columns:
        return row
    named = row[columns.index("nonfinite")]
    if not named:
        return row
    changed = list(row)
    for part in str(named).replace(";", ",").split(","):
        name, _, word = part.strip().partition("=")
        if name in columns and changed[columns.index(name)] is None:
            changed[columns.index(name)] = float(word) if word in ("nan", "inf", "-inf") else math.nan
    return tuple(changed)


_ENVIRONMENTS = """
SELECT * FROM environment WHERE environment_id IN (
    SELECT a.environment_id FROM attempt a JOIN job j ON j.job_id = a.job_id WHERE j.sweep_id = :sweep_id)
ORDER BY environment_id
"""


def environments(store: Reads, sweep_id: int) -> list[dict[str, Value]]:
    """The hosts and software stacks on which the sweep's attempts ran."""
    return fetch(store, _ENVIRONMENTS, sweep_id=sweep_id).dicts()


_PROBES = """
SELECT host, device_uuid, device_name, pinned, direction, bytes, gbps, devices_at_once, probed_at
FROM link_probe WHERE sweep_id = :sweep_id ORDER BY probed_at, device_uuid, pinned, direction
"""


def probes(store: Reads, sweep_id: int) -> list[dict[str, Value]]:
    """The sweep's measurements of the raw link, oldest first."""
    return fetch(store, _PROBES, sweep_id=sweep_id).dicts()


_SLOWEST_RANKS = """
SELECT iteration, is_warmup, is_cold, is_instrumented, MAX(started_s) AS started_s, MAX(step_s) AS step_s,
       MAX(offload_s) AS offload_s, MAX(reload_s) AS reload_s
FROM iteration WHERE attempt_id = :attempt_id
GROUP BY iteration, is_warmup, is_cold, is_instrumented ORDER BY iteration
"""


def slowest_ranks(store: Reads, attempt_id: int) -> list[dict[str, Value]]:
    """The attempt's iterations, each the maximum over its ranks, seconds."""
    return fetch(store, _SLOWEST_RANKS, attempt_id=attempt_id).dicts()


_SPLIT = """
SELECT COUNT(*) AS iterations, AVG(offload_copy_s) AS offload_copy_s, AVG(offload_gc_s) AS offload_gc_s,
       AVG(offload_empty_cache_s) AS offload_empty_cache_s, AVG(offload_alloc_s) AS offload_alloc_s,
       AVG(offload_wait_s) AS offload_wait_s, AVG(reload_copy_s) AS reload_copy_s,
       AVG(reload_gc_s) AS reload_gc_s, AVG(reload_empty_cache_s) AS reload_empty_cache_s,
       AVG(reload_alloc_s) AS reload_alloc_s, AVG(reload_wait_s) AS reload_wait_s
FROM iteration WHERE attempt_id = :attempt_id AND is_instrumented AND NOT is_cold
"""


def time_split(store: Reads, attempt_id: int) -> dict[str, Value] | None:
    """Mean seconds of each part over the instrumented iterations; None if there were none."""
    [split] = fetch(store, _SPLIT, attempt_id=attempt_id).dicts()
    return split if split["iterations"] else None


_MEMORY = """
SELECT at_s, phase, iteration, allocated_bytes, reserved_bytes, device_used_bytes, pinned_bytes, rss_bytes
FROM memory_sample WHERE attempt_id = :attempt_id AND rank = :rank ORDER BY at_s, sample LIMIT :most
"""


def memory_over_time(store: Reads, attempt_id: int, rank: int, most: int) -> list[dict[str, Value]]:
    """The first ``most`` memory samples of one rank of an attempt, in order of time."""
    return fetch(store, _MEMORY, attempt_id=attempt_id, rank=rank, most=most).dicts()
