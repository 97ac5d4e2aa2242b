"""Moves sweeps from one database into another, merging by ``uid``; ids are handed out anew.

Either side may be SQLite or PostgreSQL. A second transfer of the same rows changes nothing; a job that
was continued on one side keeps what both sides measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, insert, or_, select, update

from orchestrator.store.bulk import insert_new
from orchestrator.store.ids import take_ids
from orchestrator.store.results import refresh_results
from orchestrator.store.tables import (
    attempt,
    attempt_rank,
    environment,
    event,
    iteration,
    job,
    link_probe,
    memory_sample,
    sweep,
)

if TYPE_CHECKING:
    from orchestrator.store.store import Store

Row = dict[str, Any]

_AT_ONCE = 5000
_IDS_AT_ONCE = 500


@dataclass(slots=True)
class Transfer:
    """What was transferred.

    Attributes:
        sweeps: names in the target, in order.
        renamed: name in the source -> name in the target, where another sweep had it.
        jobs, attempts, iterations, samples: rows that were new in the target.
    """

    sweeps: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    jobs: int = 0
    attempts: int = 0
    iterations: int = 0
    samples: int = 0

    def told(self) -> str:
        """One line for people."""
        names = ", ".join(
            f"{old} (now {new})" if (old := self._old(new)) != new else new for new in self.sweeps
        )
        rows = {"jobs": self.jobs, "attempts": self.attempts}
        rows |= {"iterations": self.iterations, "samples": self.samples}
        parts = [f"{many} {kinds if many != 1 else kinds[:-1]}" for kinds, many in rows.items()]
        return f"{names or 'no sweep'}: new {', '.join(parts)}"

    def _old(self, new: str) -> str:
        return next((old for old, now in self.renamed.items() if now == new), new)


def transfer(source: Store, target: Store, names: Sequence[str] = (), *, samples: bool = True) -> Transfer:
    """Copy the sweeps of those names (none given: all) with everything that hangs on them.

    Each sweep is one transaction in the target: it is there whole, or not at all.

    Raises:
        OrchError: the source has no sweep of a name.
    """
    done = Transfer()
    for name in list(names) or source.sweep_names()[::-1]:
        row = source.sweep(name)

        def work(into: Connection, sweep_id: int = row.sweep_id) -> _Mover:
            with source.session.reading() as out:
                mover = _Mover(out, into, samples=samples)
                mover.move(sweep_id)
                return mover

        mover = target.session.write(work)
        done.sweeps.append(mover.name)
        if mover.name != name:
            done.renamed[name] = mover.name
        done.jobs += mover.jobs
        done.attempts += mover.attempts
        done.iterations += mover.iterations
        done.samples += mover.samples
    return done


class _Mover:
    """Moves one sweep between two open transactions."""

    def __init__(self, out: Connection, into: Connection, *, samples: bool) -> None:
        self._out, self._into, self._with_samples = out, into, samples
        self._jobs: dict[int, int] = {}
        self._attempts: dict[int, int] = {}
        self._environments: dict[int, int] = {}
        self._devices: set[str] = set()
        self.name = ""
        self.jobs = self.attempts = self.iterations = self.samples = 0

    def move(self, sweep_id: int) -> None:
        """Sweep, jobs, environments, attempts, records, probes and events, in the order of references."""
        given = _rows(self._out, sweep, sweep.c.sweep_id == sweep_id)[0]
        into_id = self._sweep(given)
        self._move_jobs(sweep_id, into_id)
        self._move_attempts()
        self._move_records()
        self._move_probes(sweep_id, into_id)
        self._move_events(sweep_id, into_id)
        refresh_results(self._into, self._jobs.values())

    def _sweep(self, given: Row) -> int:
        there = _rows(self._into, sweep, sweep.c.uid == given["uid"])
        if there:
            self.name = there[0]["name"]
            if given["updated_at"] > there[0]["updated_at"]:
                newer = {n: given[n] for n in ("spec", "spec_path", "engine", "updated_at")}
                self._into.execute(update(sweep).where(sweep.c.uid == given["uid"]).values(newer))
            return int(there[0]["sweep_id"])
        self.name = self._free_name(given["name"])
        new_id = take_ids(self._into, "sweep")
        fresh = {**given, "sweep_id": new_id, "name": self.name, "owner": None, "cancel_requested": False}
        self._into.execute(insert(sweep), fresh)
        return new_id

    def _free_name(self, name: str) -> str:
        taken = set(self._into.execute(select(sweep.c.name)).scalars())
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        return free

    def _move_jobs(self, sweep_id: int, into_id: int) -> None:
        given = _rows(self._out, job, job.c.sweep_id == sweep_id)
        there = {r["uid"]: r for r in _rows(self._into, job, job.c.sweep_id == into_id)}
        # The same cell may have been added on both sides of a sweep that was copied before.
        by_place = {(r["cell"], r["repeat"]): r for r in there.values()}
        new = []
        for row in given:
            known = there.get(row["uid"]) or by_place.get((row["cell"], row["repeat"]))
            if known is None:
                new.append(row)
                continue
            self._jobs[row["job_id"]] = known["job_id"]
            if _supersedes(row, known):
                values = {name: row[name] for name in ("status", "reason", "updated_at")}
                self._into.execute(update(job).where(job.c.job_id == known["job_id"]).values(values))
        self.jobs = len(new)
        if new:
            first = take_ids(self._into, "job", len(new))
            self._jobs |= {row["job_id"]: first + place for place, row in enumerate(new)}
            _insert(
                self._into, job, [{**r, "job_id": self._jobs[r["job_id"]], "sweep_id": into_id} for r in new]
            )

    def _environment(self, given_id: int | None) -> int | None:
        if given_id is None:
            return None
        if given_id not in self._environments:
            [row] = _rows(self._out, environment, environment.c.environment_id == given_id)
            there = _rows(self._into, environment, environment.c.uid == row["uid"])
            if there:
                self._environments[given_id] = there[0]["environment_id"]
            else:
                self._environments[given_id] = take_ids(self._into, "environment")
                _insert(self._into, environment, [{**row, "environment_id": self._environments[given_id]}])
        return self._environments[given_id]

    def _move_attempts(self) -> None:
        for ids in _blocks(self._jobs):
            given = _rows(self._out, attempt, attempt.c.job_id.in_(ids), order=attempt.c.attempt_id)
            into_jobs = [self._jobs[job_id] for job_id in ids]
            there = _rows(self._into, attempt, attempt.c.job_id.in_(into_jobs))
            known = {row["uid"]: row for row in there}
            numbers = {(row["job_id"], row["number"]) for row in there}
            new = []
            for row in given:
                self._devices |= {one for one in json.loads(row["device_uuids"] or "[]") if one}
                mine = known.get(row["uid"])
                if mine is not None:
                    self._attempts[row["attempt_id"]] = mine["attempt_id"]
                    if mine["status"] == "running" != row["status"]:
                        self._end(mine["attempt_id"], row)
                    continue
                fresh = {**row, "job_id": self._jobs[row["job_id"]],
                         "environment_id": self._environment(row["environment_id"])}  # fmt: skip
                while (fresh["job_id"], fresh["number"]) in numbers:
                    fresh["number"] += 1
                numbers.add((fresh["job_id"], fresh["number"]))
                new.append(fresh)
            if new:
                self.attempts += len(new)
                first = take_ids(self._into, "attempt", len(new))
                for place, row in enumerate(new):
                    self._attempts[row["attempt_id"]] = row["attempt_id"] = first + place
                _insert(self._into, attempt, new)

    def _end(self, attempt_id: int, given: Row) -> None:
        kept = ("attempt_id", "job_id", "number", "uid", "environment_id")
        values = {name: value for name, value in given.items() if name not in kept}
        values["environment_id"] = self._environment(given["environment_id"])
        self._into.execute(update(attempt).where(attempt.c.attempt_id == attempt_id).values(values))

    def _move_records(self) -> None:
        self._move_table(attempt_rank)
        self.iterations = self._move_table(iteration)
        if self._with_samples:
            self.samples = self._move_table(memory_sample)

    def _move_table(self, table: Table) -> int:
        moved = 0
        for ids in _blocks(self._attempts):
            for rows in _stream(self._out, table, table.c.attempt_id.in_(ids)):
                for row in rows:
                    row["attempt_id"] = self._attempts[row["attempt_id"]]
                    if "environment_id" in row:
                        row["environment_id"] = self._environment(row["environment_id"])
                moved += insert_new(self._into, table, rows)
        return moved

    def _move_probes(self, sweep_id: int, into_id: int) -> None:
        """The sweep's probes, and those of others on the same devices: shares of the link rest on them."""
        concerns = link_probe.c.sweep_id == sweep_id
        if self._devices:
            concerns = or_(concerns, link_probe.c.device_uuid.in_(sorted(self._devices)))
        given = {row["uid"]: row for row in _rows(self._out, link_probe, concerns)}
        there: set[str] = set()
        for uids in _blocks(given):
            mine = link_probe.c.uid.in_(uids)
            there |= set(self._into.execute(select(link_probe.c.uid).where(mine)).scalars())
            ours = [uid for uid in uids if given[uid]["sweep_id"] == sweep_id]
            nobodys = link_probe.c.uid.in_(ours) & link_probe.c.sweep_id.is_(None)
            self._into.execute(update(link_probe).where(nobodys).values(sweep_id=into_id))
        new = [row for uid, row in given.items() if uid not in there]
        if new:
            first = take_ids(self._into, "link_probe", len(new))
            for place, row in enumerate(new):
                row["probe_id"] = first + place
                row["sweep_id"] = into_id if row["sweep_id"] == sweep_id else None
            _insert(self._into, link_probe, new)

    def _move_events(self, sweep_id: int, into_id: int) -> None:
        known = {_event_key(row) for row in _rows(self._into, event, event.c.sweep_id == into_id)}
        new = []
        for row in _rows(self._out, event, event.c.sweep_id == sweep_id, order=event.c.event_id):
            row["sweep_id"] = into_id
            row["job_id"] = self._jobs.get(row["job_id"])
            row["attempt_id"] = self._attempts.get(row["attempt_id"])
            if _event_key(row) not in known:
                new.append(row)
        if new:
            first = take_ids(self._into, "event", len(new))
            _insert(self._into, event, [{**r, "event_id": first + n} for n, r in enumerate(new)])


def _event_key(row: Row) -> tuple[Any, ...]:
    return tuple(value for name, value in row.items() if name != "event_id")


def _supersedes(given: Row, known: Row) -> bool:
    """A result is never replaced by the lack of one; else the later word counts."""
    if known["status"] == "ok" or known["status"] == given["status"]:
        return False
    return given["status"] == "ok" or bool(given["updated_at"] > known["updated_at"])


def _rows(connection: Connection, table: Table, condition: Any, order: Any = None) -> list[Row]:
    query = select(table).where(condition).order_by(*(table.primary_key if order is None else [order]))
    return [dict(row._mapping) for row in connection.execute(query)]


def _stream(connection: Connection, table: Table, condition: Any) -> Iterator[list[Row]]:
    query = select(table).where(condition)
    result = connection.execution_options(stream_results=True, yield_per=_AT_ONCE).execute(query)
    for rows in result.partitions():
        yield [dict(row._mapping) for row in rows]


def _blocks(ids: Iterable[Any]) -> Iterator[list[Any]]:
    every = list(ids)
    for start in range(0, len(every), _IDS_AT_ONCE):
        yield every[start : start + _IDS_AT_ONCE]


def _insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    connection.execute(insert(table), list(rows))
