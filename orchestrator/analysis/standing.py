"""Where a sweep stands: counts, what runs now, what went wrong last. No pandas: it must be quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.store import queries_status as queries
from orchestrator.store.addresses import addresses
from orchestrator.store.queries_report import Reads, Value
from orchestrator.store.rows import SweepRow
from orchestrator.store.status import AGAIN_BY_DEFAULT


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt that runs now; ages in seconds, None if the time is not known."""

    name: str
    attempt: int
    host: str | None
    engine: str
    age_s: float | None
    heartbeat_age_s: float | None
    is_timed: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """A job that gave no result."""

    name: str
    status: str
    failure_kind: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A sweep's state at one moment."""

    sweep: SweepRow
    counts: Mapping[str, int]
    """Jobs that the sweep file asks for, by status."""
    gone: int
    """Jobs that it no longer asks for."""
    runner: str | None
    """Who runs it now; None if nobody does."""
    is_stopping: bool
    """Somebody was asked to stop it and has not yet left."""
    running: tuple[Running, ...]
    troubles: tuple[Trouble, ...]
    other_sweeps: tuple[str, ...]
    address: str | None
    """What commands take for the job to look at next; None if there is none."""

    @property
    def jobs(self) -> int:
        """How many jobs the sweep file asks for."""
        return sum(self.counts.values())

    @property
    def is_unfinished(self) -> bool:
        """Whether ``orch sweep`` would run something of it."""
        return any(self.counts.get(status) for status in ("running", *AGAIN_BY_DEFAULT))


def standing(store: Reads, sweep_name: str | None, now: datetime | None = None) -> Standing:
    """Where the sweep (None = the one that was run last) stands.

    Raises:
        OrchError: there is no such sweep.
    """
    sweep = store.sweep(sweep_name)
    moment = now or datetime.now(UTC)
    counts, gone = queries.status_counts(store, sweep.sweep_id)
    running = queries.running_attempts(store, sweep.sweep_id) if counts.get("running") else []
    troubles = queries.troubled_jobs(store, sweep.sweep_id)
    runner = queries.runner(store, sweep)
    worth = [row for row in (*running, *troubles) if row.get("status") != "skipped"]
    next_ids = [int(str(row["job_id"])) for row in worth[:1]]
    others = tuple(name for name in store.sweep_names() if name != sweep.name)
    return Standing(
        sweep=sweep,
        counts=counts,
        gone=gone,
        runner=runner,
        is_stopping=sweep.cancel_requested
        and (runner is not None or queries.has_living_attempt(store, sweep.sweep_id)),
        running=tuple(_running(row, moment) for row in running),
        troubles=tuple(_trouble(row) for row in troubles),
        other_sweeps=others,
        address=next(iter(addresses(store, next_ids).values()), None),
    )


def short_name(row: Mapping[str, Value]) -> str:
    """``CELL6/REPEAT``."""
    return f"{str(row['cell']).removeprefix('v1:')[:6]}/{row['repeat']}"


def _running(row: Mapping[str, Value], now: datetime) -> Running:
    since = row.get("started_at") or row.get("created_at")
    beat = row.get("heartbeat")
    return Running(
        name=short_name(row),
        attempt=int(str(row["number"])),
        host=None if row["host"] is None else str(row["host"]),
        engine=str(row["engine"]),
        age_s=(now - datetime.fromisoformat(str(since))).total_seconds() if since else None,
        heartbeat_age_s=now.timestamp() - beat if isinstance(beat, (int, float)) else None,
        is_timed=row["timed_from_at"] is not None and row["timed_to_at"] is None,
    )


def _trouble(row: Mapping[str, Value]) -> Trouble:
    kind = row["failure_kind"]
    return Trouble(
        short_name(row),
        str(row["status"]),
        None if kind is None else str(kind),
        str(row["reason"] or "no reason recorded"),
    )
