"""Takes the spool of an attempt in: every complete line, each once, however often it is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, select

from orchestrator.store.attempts import set_columns_of
from orchestrator.store.bulk import insert_new, upsert_known
from orchestrator.store.clock import utc_now
from orchestrator.store.coerce import DoesNotFit, fitters, nonfinite_name
from orchestrator.store.ids import add_events, take_ids
from orchestrator.store.probes import put_probes
from orchestrator.store.results import refresh_results
from orchestrator.store.rows import IntakeCount, ProbeRow
from orchestrator.store.spoolfile import Line, rank_of, read_lines
from orchestrator.store.tables import (
    attempt,
    attempt_rank,
    environment,
    event,
    iteration,
    job,
    link_probe,
    memory_sample,
)

Row = dict[str, Any]
Write = Callable[[Callable[[Connection], None]], None]

BATCH_ROWS = 5000
"""Rows of one transaction: short for other writers, and the memory that an intake takes."""

_SUMMARIES = (
    select(
        attempt_rank.c.attempt_id,
        func.min(attempt_rank.c.timed_from_at),
        func.max(attempt_rank.c.timed_to_at),
        func.max(attempt_rank.c.loop_s),
        func.min(attempt_rank.c.launch_mode),
    )
    .where(attempt_rank.c.attempt_id.in_(bindparam("ids", expanding=True)))
    .group_by(attempt_rank.c.attempt_id)
)
_SUMMARY = ("timed_from_at", "timed_to_at", "loop_s", "launch_mode")
_STATUSES = (
    select(job.c.job_id, job.c.sweep_id, attempt.c.status)
    .join(attempt, attempt.c.job_id == job.c.job_id)
    .where(attempt.c.attempt_id.in_(bindparam("ids", expanding=True)))
)

_IDENTITY = [c.name for c in environment.c if c.name not in ("environment_id", "uid", "created_at")]
_SETTABLE = frozenset(
    "ds_config ds_config_sha256 alloc_conf tracked_objects numa_bound overlapped overlap_note"
    " launch_note".split()
)
"""Columns of ``attempt`` that a rank may set; the rest is the supervisor's."""

_PROBE = [c.name for c in link_probe.c if c.name not in ("probe_id", "uid", "sweep_id")]

_SUPERVISORS = frozenset({"launch_mode"})
"""Columns that a rank sets only where the supervisor has not."""


@dataclass(slots=True)
class Batch:
    """Rows on their way into the database."""

    attempt_id: int
    iterations: list[Row] = field(default_factory=list)
    samples: list[Row] = field(default_factory=list)
    ranks: dict[int, Row] = field(default_factory=dict)
    environments: list[tuple[int, Row]] = field(default_factory=list)
    attempt: Row = field(default_factory=dict)
    probes: list[ProbeRow] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.iterations) + len(self.samples)

    def rank(self, number: int) -> Row:
        """What is known of that rank."""
        return self.ranks.setdefault(number, {"attempt_id": self.attempt_id, "rank": number})


@dataclass(slots=True)
class Reader:
    """Reads spool files into batches and keeps count."""

    attempt_id: int
    attempt_uid: str
    lines: int = 0
    iterations: int = 0
    samples: int = 0
    ranks_done: set[int] = field(default_factory=set)
    bad: list[tuple[str, int, str]] = field(default_factory=list)
    bad_lines: int = 0

    def batches(self, files: Iterable[Path]) -> Iterator[Batch]:
        """Every record of the files; batches of some size, then one with the rest."""
        batch = Batch(self.attempt_id)
        for path in files:
            for line in self._lines(path):
                self.lines += 1
                try:
                    self._take(batch, line, rank_of(path))
                except _Stranger:
                    self._note(path, line.number, "it is of another attempt; the file is left out")
                    break
                except DoesNotFit as problem:
                    self._note(path, line.number, str(problem))
                if len(batch) >= BATCH_ROWS:
                    yield batch
                    batch = Batch(self.attempt_id)
        yield batch

    def _lines(self, path: Path) -> Iterable[Line]:
        try:
            yield from read_lines(path)
        except OSError as e:
            self._note(path, 0, f"cannot be read: {e.strerror}")

    def _note(self, path: Path, number: int, problem: str) -> None:
        self.bad_lines += 1
        if not any(name == path.name for name, _, _ in self.bad):
            self.bad.append((path.name, number, problem))

    def _take(self, batch: Batch, line: Line, rank: int | None) -> None:
        record = line.record
        if record is None:
            raise DoesNotFit(line.problem)
        kind = record["kind"]
        if kind in ("iteration", "sample"):
            self._take_row(batch, kind, record, rank)
            return
        rank = _rank(record.get("rank"), rank)
        if kind == "link_probe":
            batch.probes.append(_probe(record))
        elif kind == "attempt":
            batch.attempt.update(_fitted(attempt, {k: v for k, v in record.items() if k in _SETTABLE}))
        elif rank is None:
            if kind in ("start", "environment", "timed_from", "timed_to", "error", "final"):
                raise DoesNotFit(f"a record '{kind}' without a rank")
        elif kind == "environment":
            batch.environments.append((rank, _fitted(environment, record)))
        else:
            self._take_rank(batch, kind, record, rank)

    def _take_row(self, batch: Batch, kind: str, record: Row, rank: int | None) -> None:
        table = iteration if kind == "iteration" else memory_sample
        row = _fitted(table, record)
        row["attempt_id"] = self.attempt_id
        if row.get("rank") is None:
            row["rank"] = rank
        if kind == "iteration":
            row.setdefault("is_warmup", False)
            row.setdefault("is_cold", row.get("iteration") == 0)
            row.setdefault("is_instrumented", False)
            row["nonfinite"] = _nonfinite(record)
        for column in table.c:
            if not column.nullable and row.get(column.name) is None:
                raise DoesNotFit(f"'{column.name}' is missing")
        if kind == "iteration":
            self.iterations += 1
            batch.iterations.append(row)
        else:
            self.samples += 1
            batch.samples.append(row)

    def _take_rank(self, batch: Batch, kind: str, record: Row, rank: int) -> None:
        if kind == "start":
            if record.get("attempt_uid") not in (None, self.attempt_uid):
                raise _Stranger
            names = ("host", "pid", "device_uuid", "launch_mode")
            batch.rank(rank).update(_fitted(attempt_rank, {k: v for k, v in record.items() if k in names}))
            batch.rank(rank)["started_at"] = _fitted(attempt_rank, {"started_at": record.get("at")})[
                "started_at"
            ]
        elif kind == "timed_from":
            batch.rank(rank).setdefault("timed_from_at", _time(record))
        elif kind == "timed_to":
            batch.rank(rank)["timed_to_at"] = _time(record)
            batch.rank(rank)["loop_s"] = _fitted(attempt_rank, {"loop_s": record.get("loop_s")})["loop_s"]
        elif kind == "error":
            told = {k: v for k, v in record.items() if k in ("failure_kind", "message", "traceback")}
            batch.rank(rank).update(_fitted(attempt_rank, told))
            batch.rank(rank)["error_status"] = str(record.get("status", "failed"))
        elif kind == "final":
            batch.rank(rank)["final_at"] = _time(record) or utc_now()
            done = record.get("iterations")
            batch.rank(rank)["iterations"] = _fitted(attempt_rank, {"iterations": done})["iterations"]
            self.ranks_done.add(rank)

    def count(self) -> IntakeCount:
        """What was read."""
        return IntakeCount(
            self.lines, self.iterations, self.samples, self.bad_lines, frozenset(self.ranks_done)
        )


def _rank(given: object, of_file: int | None) -> int | None:
    """The record's own rank if it is one, else that of its file."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**31:
        return given
    return of_file


def _probe(record: Row) -> ProbeRow:
    row = _fitted(link_probe, {name: value for name, value in record.items() if name in _PROBE})
    missing = [name for name in _PROBE if row.get(name) is None and name != "device_name"]
    if missing:
        raise DoesNotFit(f"'{missing[0]}' is missing")
    about = [row[name] for name in ("host", "device_uuid", "pinned", "direction", "probed_at")]
    uid = hashlib.sha256(json.dumps([*about, row["devices_at_once"]]).encode()).hexdigest()
    return ProbeRow(**row, uid=uid)


class _Stranger(Exception):
    """The file belongs to another attempt."""


def _fitted(table: Table, record: Row) -> Row:
    """The record's values that are columns of the table; unknown keys are left out."""
    fit = fitters(table)
    row = {}
    for name, value in record.items():
        if name in fit:
            try:
                row[name] = fit[name](value)
            except DoesNotFit as problem:
                raise DoesNotFit(f"'{name}': {problem}") from problem
    return row


def _time(record: Row) -> Any:
    return _fitted(attempt_rank, {"final_at": record.get("at")})["final_at"]


def _nonfinite(record: Row) -> str | None:
    """``loss=nan`` for every column whose value is NULL because it is not finite."""
    fit = fitters(iteration)
    found = []
    for name, value in record.items():
        if isinstance(value, (float, str)) and name in fit:
            word = nonfinite_name(value)
            if word is not None and name != "nonfinite" and fit[name](value) is None:
                found.append(f"{name}={word}")
    given = record.get("nonfinite")
    if isinstance(given, str) and given:
        found += [part for part in given.split(",") if part and part not in found]
    return ",".join(sorted(found)) or None


def intake(attempt_id: int, attempt_uid: str, files: Iterable[Path], write: Write) -> IntakeCount:
    """Take the files in; ``write`` runs a function in a writing transaction, and may run it again."""
    spool = read_spool(attempt_id, attempt_uid, files, write)
    write(lambda connection: store_spools(connection, [spool]))
    return spool.reader.count()


@dataclass(frozen=True, slots=True)
class Spool:
    """A spool that has been read: what of it is still to be written."""

    reader: Reader
    rest: Batch


def read_spool(attempt_id: int, attempt_uid: str, files: Iterable[Path], write: Write) -> Spool:
    """Read the files; only of a large spool something is written before the end is reached."""
    reader = Reader(attempt_id, attempt_uid)
    batches = reader.batches(files)
    rest = next(batches)
    for batch in batches:
        write(partial(_store, batches=[rest]))
        rest = batch
    return Spool(reader, rest)


def store_spools(connection: Connection, spools: Sequence[Spool]) -> None:
    """Write what is left of these spools, and what was found wrong with them."""
    _store(connection, [spool.rest for spool in spools])
    for spool in spools:
        if spool.reader.bad:
            _report(connection, spool.reader)


def _store(connection: Connection, batches: Sequence[Batch]) -> None:
    for batch in batches:
        _store_environments(connection, batch)
        _store_probes(connection, batch)
    iterations = [row for batch in batches for row in batch.iterations]
    late = bool(iterations) and insert_new(connection, iteration, iterations) > 0
    samples = [row for batch in batches for row in batch.samples]
    if samples:
        insert_new(connection, memory_sample, samples)
    ranks = [row for batch in batches for row in batch.ranks.values()]
    if ranks:
        upsert_known(connection, attempt_rank, ranks)
    _update_attempts(connection, batches)
    if late or ranks or any(batch.attempt for batch in batches):
        _refresh_if_ended(connection, [batch.attempt_id for batch in batches])


def _store_environments(connection: Connection, batch: Batch) -> None:
    for rank, row in batch.environments:
        identity = {name: row.get(name) for name in _IDENTITY}
        identity["host"] = identity["host"] or batch.ranks.get(rank, {}).get("host") or "unknown"
        uid = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        query = select(environment.c.environment_id).where(environment.c.uid == uid)
        found = connection.execute(query).scalar_one_or_none()
        if found is None:
            new = {**identity, "uid": uid, "environment_id": take_ids(connection, "environment"),
                   "created_at": utc_now()}  # fmt: skip
            insert_new(connection, environment, [new])
            found = connection.execute(query).scalar_one()
        batch.rank(rank)["environment_id"] = found
        if rank == 0:
            batch.attempt["environment_id"] = found


def _store_probes(connection: Connection, batch: Batch) -> None:
    """What a node measured before its job: of the job's sweep."""
    if batch.probes:
        (ids,) = connection.execute(_STATUSES, {"ids": [batch.attempt_id]})
        rows = [replace(probe, sweep_id=ids.sweep_id) for probe in batch.probes]
        put_probes(connection, rows, [probe.uid for probe in rows])


def _update_attempts(connection: Connection, batches: Sequence[Batch]) -> None:
    """What the ranks together say about their attempts; what the supervisor set stays."""
    values = {batch.attempt_id: dict(batch.attempt) for batch in batches}
    timed = [
        batch.attempt_id
        for batch in batches
        if any(row.keys() & set(_SUMMARY) for row in batch.ranks.values())
    ]
    if timed:
        for attempt_id, *known in connection.execute(_SUMMARIES, {"ids": timed}):
            told = zip(_SUMMARY, known, strict=True)
            values[attempt_id] |= {name: value for name, value in told if value is not None}
    set_columns_of(connection, values, keep=_SUPERVISORS)


def _refresh_if_ended(connection: Connection, attempt_ids: Sequence[int]) -> None:
    """Late rows change a result that is already there."""
    rows = connection.execute(_STATUSES, {"ids": list(attempt_ids)})
    refresh_results(connection, [row.job_id for row in rows if row.status != "running"])


def _report(connection: Connection, reader: Reader) -> None:
    """One event a file that holds lines of no use; the same is not said twice."""
    attempt_id = reader.attempt_id
    ids = connection.execute(_STATUSES, {"ids": [attempt_id]}).one()
    said = set(
        connection.execute(
            select(event.c.message).where(event.c.job_id == ids.job_id, event.c.attempt_id == attempt_id)
        ).scalars()
    )
    notes = [f"spool {name}: line {number} is of no use: {problem}" for name, number, problem in reader.bad]
    add_events(
        connection,
        [
            {"sweep_id": ids.sweep_id, "job_id": ids.job_id, "attempt_id": attempt_id, "kind": "note",
             "message": note}
            for note in notes
            if note not in said
        ],
    )  # fmt: skip
