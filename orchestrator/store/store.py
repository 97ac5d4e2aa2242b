"""The store: every question and every change that the rest of orch has for the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, select

from orchestrator.store import attempts, jobs, reader, reaping, sweeps
from orchestrator.store.check import check_database, mend
from orchestrator.store.delete import Deleted, delete_sweep
from orchestrator.store.ending import end, end_all
from orchestrator.store.intake import intake, read_spool, store_spools
from orchestrator.store.locks import Held, file_lock, server_lock
from orchestrator.store.owner import owner_is_alive, this_owner
from orchestrator.store.probes import put_probes
from orchestrator.store.results import refresh_results
from orchestrator.store.rows import (
    AttemptEnd,
    AttemptRow,
    EventRow,
    Finding,
    IntakeCount,
    JobRow,
    NewAttempt,
    ProbeRow,
    RankRow,
    SweepChange,
    SweepRow,
)
from orchestrator.store.session import Session
from orchestrator.store.spoolfile import spool_files
from orchestrator.store.status import JobStatus, Verdict
from orchestrator.store.tables import attempt, attempt_rank, event, job

if TYPE_CHECKING:
    import pandas

    from orchestrator.spec.bytes import Prediction
    from orchestrator.spec.plan import Plan

T = TypeVar("T")

SPOOL = "spool"
"""The folder of an attempt's spool inside its ``run_dir``."""

_CLAIM_AT_ONCE = 256


class Store:
    """One results database. Made by ``open_store``; thread-safe; a forked child starts afresh.

    Every method is one short transaction, safe to repeat, tried again for ``patience_s`` while the
    server is away. All raise a ``DatabaseError``, by kind.

    Attributes:
        url: opens the same database from any folder; holds the password, so never print it.
        shown: for people.
        dialect: ``sqlite`` or ``postgresql``.
        warnings: each one line, for the user.
    """

    def __init__(
        self, url: str, *, readonly: bool = False, patience_s: float = 30.0, shown: str | None = None
    ) -> None:
        self.session = Session(url, readonly=readonly, patience_s=patience_s, shown=shown)
        self.url, self.dialect, self.shown = self.session.url, self.session.dialect, self.session.shown
        self.warnings = self.session.warnings
        self._held: Held | None = None

    def close(self) -> None:
        """Close every connection."""
        self.session.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, work: Callable[[Connection], T]) -> T:
        """What ``work`` makes of a connection that only reads; for this package's queries."""
        return self.session.read(work)

    # --- sweeps

    def put_sweep(self, plan: Plan, predictions: Mapping[str, Prediction] | None = None) -> SweepChange:
        """Write the plan, or continue the sweep of that name; ``predictions`` by cell key.

        Raises:
            SpecError: a value's type differs from the one under which the sweep was begun.
        """
        owner = this_owner()
        before = self.session.read(lambda c: sweeps.stored_spec(c, plan.name))
        if before is not None and before != plan.source:
            from orchestrator.spec.change import check_types

            check_types(before, plan)
        return self.session.write(lambda c: sweeps.put_sweep(c, plan, predictions or {}, owner))

    @contextmanager
    def sweep_lock(self, name: str) -> Iterator[None]:
        """Hold the sweep against every other orch; the kernel or the server frees it with its holder.

        Raises:
            SweepRunning: a living orch runs it.
        """
        path = self.session.where.path
        if path is not None:
            lock = file_lock(path, name, this_owner())
        else:
            lock = server_lock(self.session.engine, name, self._owner_of(name))
        with lock as held:
            self._held = held
            try:
                yield
            finally:
                self._held = None

    def _owner_of(self, name: str) -> str:
        return next((s.owner or "" for s in self.sweeps() if s.name == name), "")

    def still_locked(self) -> bool:
        """Whether the sweep lock is still ours; after a restart of the server it is taken again."""
        return self._held is None or self._held.keep()

    def sweeps(self) -> list[SweepRow]:
        """Every sweep, the one that was run last first."""
        return self.session.read(lambda c: [sweeps.find_sweep(c, name) for name in sweeps.sweep_names(c)])

    def sweep_names(self) -> list[str]:
        """Every sweep's name, the one that was run last first."""
        return self.session.read(sweeps.sweep_names)

    def latest_sweep(self) -> SweepRow:
        """The sweep that was run last. Raises OrchError if there is none."""
        return self.sweep(None)

    def sweep(self, name: str | None = None) -> SweepRow:
        """The sweep of that name; None = the one that was run last. Raises OrchError if there is none."""
        return self.session.read(lambda c: sweeps.find_sweep(c, name))

    def request_cancel(self, name: str) -> SweepRow:
        """Ask whoever runs the sweep to stop."""
        return self.session.write(lambda c: sweeps.request_cancel(c, name))

    def cancel_requested(self, sweep_id: int) -> bool:
        """Whether somebody asked to stop the sweep."""
        return self.session.read(lambda c: sweeps.cancel_requested(c, sweep_id), patience_s=0.0)

    def set_owner(self, sweep_id: int, owner: str | None) -> None:
        """Record who runs the sweep now; None = nobody."""
        self.session.write(lambda c: sweeps.set_owner(c, sweep_id, owner))

    def counts(self, sweep_id: int) -> dict[JobStatus, int]:
        """Jobs of the sweep file by status, and what else of the sweep is running; every status is there."""
        return self.session.read(lambda c: jobs.counts(c, sweep_id))

    # --- jobs

    def jobs(
        self, sweep_id: int, statuses: Iterable[JobStatus] | None = None, *, gone: bool = False
    ) -> list[JobRow]:
        """Jobs in running order; ``gone``: also those that the sweep file no longer asks for."""
        return self.session.read(lambda c: jobs.jobs(c, sweep_id, statuses, gone=gone))

    def runnable(self, sweep_id: int, *, retry_failed: bool = False) -> list[JobRow]:
        """Jobs that continuing the sweep runs, in running order. Skipped ones: weigh them first."""
        return self.session.read(lambda c: jobs.runnable(c, sweep_id, retry_failed=retry_failed))

    def requeue(self, sweep_id: int, *, retry_failed: bool = False) -> int:
        """Make those jobs pending, for pilots, which claim pending jobs alone."""
        return self.session.write(lambda c: jobs.requeue(c, sweep_id, retry_failed=retry_failed))

    def weigh(self, skip: Sequence[tuple[int, str]] = (), unskip: Sequence[int] = ()) -> None:
        """Mark jobs as skipped for a reason, or as pending again. Running and ok jobs stay."""
        self.session.write(lambda c: jobs.weigh(c, skip, unskip))

    def find_job(self, text: str, sweep: str | None = None) -> JobRow:
        """The job that an id, the start of a uid, CELL6 or CELL6/REPEAT means. Raises OrchError."""
        return self.session.read(lambda c: jobs.find_job(c, text, sweep))

    def accelerator_of(self, job_id: int) -> str | None:
        """``cuda`` or ``cpu``, on which the job last ran; None if it never did."""
        return self.session.read(lambda c: jobs.accelerator_of(c, job_id))

    # --- attempts

    def begin_attempt(self, job_id: int, new: NewAttempt) -> AttemptRow | None:
        """Claim the job and begin an attempt; None if the job can no longer be claimed."""
        return self.session.write(lambda c: attempts.begin(c, job_id, new))

    def begin_attempts(self, new: Sequence[tuple[int, NewAttempt]]) -> list[AttemptRow | None]:
        """The same for several, in one transaction."""
        return self.session.write(lambda c: attempts.begin_all(c, new))

    def claim_next(
        self, sweep_id: int, new: Callable[[JobRow], NewAttempt], fits: Callable[[JobRow], bool]
    ) -> tuple[JobRow, AttemptRow] | None:
        """Begin an attempt of the first pending job that fits; None: there is none, or a cancel."""
        if self.cancel_requested(sweep_id):
            return None
        last: JobRow | None = None
        while waiting := self._pending(sweep_id, last):
            for row in filter(fits, waiting):
                begun = self._claim(row, new(row))
                if begun is not None:
                    return row, begun
            last = waiting[-1]
        return None

    def _pending(self, sweep_id: int, after: JobRow | None) -> list[JobRow]:
        return self.session.read(lambda c: jobs.first_pending(c, sweep_id, _CLAIM_AT_ONCE, after))

    def _claim(self, row: JobRow, new: NewAttempt) -> AttemptRow | None:
        return self.session.write(lambda c: attempts.claim(c, row.job_id, new))

    def attempt(self, attempt_id: int) -> AttemptRow | None:
        """That attempt; None if there is none."""
        return self.session.read(lambda c: attempts.find_attempt(c, attempt_id))

    def attempts(self, job_id: int) -> list[AttemptRow]:
        """Every attempt of the job, oldest first."""
        return self.session.read(lambda c: attempts.find_attempts(c, attempt.c.job_id == job_id))

    def attempts_after(self, sweep_id: int, attempt_id: int) -> list[AttemptRow]:
        """Attempts of the sweep that were begun after that one, oldest first."""
        later = (job.c.sweep_id == sweep_id, attempt.c.attempt_id > attempt_id)
        return self.session.read(lambda c: attempts.find_attempts(c, *later))

    def running_attempts(self, sweep_id: int | None = None) -> list[AttemptRow]:
        """Attempts that the database holds as running, of one sweep or of all."""
        return self.session.read(lambda c: attempts.running_attempts(c, sweep_id))

    def attempt_update(self, attempt_id: int, **columns: object) -> None:
        """Set columns of the attempt, whatever its status; lists and mappings become JSON."""
        self.session.write(lambda c: attempts.update_attempt(c, attempt_id, columns))

    def heartbeat(self, attempt_ids: Iterable[int]) -> None:
        """Say that the attempts live. Not tried again: the next one comes soon."""
        ids = list(attempt_ids)
        self.session.write(lambda c: attempts.heartbeat(c, ids), patience_s=0.0)

    def end_attempt(
        self, attempt_id: int, verdict: Verdict, *, retry: bool = False, **columns: object
    ) -> bool:
        """End a running attempt, move its job (``retry``: to pending) and compute its result.

        False if the attempt is no longer running: the change is refused and an event says so.
        """
        ending = AttemptEnd(
            attempt_id, verdict.status, verdict.failure_kind, verdict.message, retry, dict(columns)
        )
        return self.session.write(lambda c: end(c, ending))

    def end_attempts(self, endings: Sequence[AttemptEnd]) -> list[bool]:
        """The same for several, in one transaction."""
        return self.session.write(lambda c: end_all(c, endings))

    def finish_attempts(self, work: Sequence[tuple[AttemptEnd, Path | None]]) -> list[bool]:
        """Take their spools in and end the attempts, in one transaction (a large spool takes several)."""
        uids = self.session.read(lambda c: attempts.uids_of(c, [ending.attempt_id for ending, _ in work]))
        spools = [
            read_spool(ending.attempt_id, uids[ending.attempt_id], spool_files(folder), self.session.write)
            for ending, folder in work
            if folder is not None and ending.attempt_id in uids
        ]

        def finish(connection: Connection) -> list[bool]:
            store_spools(connection, spools)
            spooled = {ending.attempt_id for ending, folder in work if folder is not None}
            return end_all(connection, [ending for ending, _ in work], spooled)

        return self.session.write(finish)

    def reap(
        self, sweep_id: int | None = None, is_alive: Callable[[AttemptRow], bool] = owner_is_alive
    ) -> list[AttemptRow]:
        """Settle running attempts whose owner is gone: spool first, then ok, failed or lost.

        Also takes up lost and cancelled attempts whose every rank delivered late: their job is ok
        and need not run again. Returns the attempts that changed.
        """
        settled: list[AttemptRow] = []
        for one in self.running_attempts(sweep_id):
            if not is_alive(one):
                self.intake(one.attempt_id, Path(one.run_dir) / SPOOL)
                after = self.session.write(lambda c, a=one: reaping.settle_dead(c, a))  # type: ignore[misc]
                settled += [after] if after is not None else []
        return settled + (self.take_in_late(sweep_id) if sweep_id is not None else [])

    def take_in_late(self, sweep_id: int) -> list[AttemptRow]:
        """Lost and cancelled attempts whose every rank delivered after all become ok."""
        taken = []
        for one in self.session.read(lambda c: reaping.given_up(c, sweep_id)):
            self.intake(one.attempt_id, Path(one.run_dir) / SPOOL)
            if self.session.write(lambda c, a=one: reaping.settle_late(c, a)):  # type: ignore[misc]
                after = self.attempt(one.attempt_id)
                taken += [after] if after is not None else []
        return taken

    # --- records

    def intake(self, attempt_id: int, spool_dir: Path | str) -> IntakeCount:
        """Take in every complete line of the spool; a second time changes nothing."""
        return self._intake(attempt_id, spool_files(Path(spool_dir)))

    def intake_file(self, attempt_id: int, path: Path | str) -> IntakeCount:
        """The same for one file: a rank that commits its own records."""
        return self._intake(attempt_id, [Path(path)])

    def _intake(self, attempt_id: int, files: Sequence[Path]) -> IntakeCount:
        if not files:
            return IntakeCount()
        uid = self.session.read(lambda c: attempts.uid_of(c, attempt_id))
        if uid is None:
            return IntakeCount()
        return intake(attempt_id, uid, files, self.session.write)

    def ranks(self, attempt_id: int) -> list[RankRow]:
        """How far each rank of the attempt came."""
        columns = [attempt_rank.c[name] for name in RankRow.__dataclass_fields__]
        query = select(*columns).where(attempt_rank.c.attempt_id == attempt_id).order_by(attempt_rank.c.rank)
        return self.session.read(lambda c: [RankRow(*row) for row in c.execute(query)])

    def records_complete(self, attempt_id: int) -> frozenset[int]:
        """Ranks whose final record is in the database."""
        return frozenset(row.rank for row in self.ranks(attempt_id) if row.final_at is not None)

    def put_probes(self, probes: Sequence[ProbeRow]) -> list[int]:
        """Store link probes; returns the jobs whose share of the link they changed."""
        uids = [probe.uid or sweeps.new_uid() for probe in probes]
        return self.session.write(lambda c: put_probes(c, probes, uids))

    def refresh_result(self, job_ids: Iterable[int]) -> None:
        """Recompute ``job_result``."""
        ids = list(job_ids)
        self.session.write(lambda c: refresh_results(c, ids))

    # --- upkeep

    def check(self) -> list[Finding]:
        """What is wrong with the database; nothing is changed."""
        return self.session.read(check_database)

    def mend(self) -> int:
        """Recompute what is derived; returns the number of jobs."""
        return self.session.write(mend)

    def delete_sweep(self, name: str) -> Deleted:
        """Delete a sweep with all its rows. Raises SweepRunning if it runs, OrchError if there is none."""
        with self.sweep_lock(name):
            return self.session.write(lambda c: delete_sweep(c, name))

    # --- reading

    def events(self, job_id: int | None = None, sweep_id: int | None = None) -> list[EventRow]:
        """What happened, oldest first: to a job, or to a sweep."""
        columns = [event.c[name] for name in EventRow.__dataclass_fields__]
        query = select(*columns).order_by(event.c.event_id)
        if job_id is not None:
            query = query.where(event.c.job_id == job_id)
        if sweep_id is not None:
            query = query.where(event.c.sweep_id == sweep_id)
        return self.session.read(lambda c: [EventRow(*row) for row in c.execute(query)])

    def sql(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a user's query, which cannot change anything. Raises OrchError."""
        return self.session.read(lambda c: reader.run_sql(c, query), patience_s=0.0)

    def read_frame(self, query: str, parameters: Mapping[str, object] | None = None) -> pandas.DataFrame:
        """One of orch's own queries as a DataFrame; values are bound by ``:name``."""
        return self.session.read(lambda c: reader.read_frame(c, query, parameters))
