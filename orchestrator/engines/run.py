"""Run a sweep, or continue it: one loop for every engine.

The database is the truth about jobs; this module decides only which job is next and when to stop.
What is left of an earlier run is settled first (``earlier.py``), then ``schedule.py`` turns.
"""

from __future__ import annotations

import contextlib
import time

from orchestrator.engines.base import Engine, SweepOptions
from orchestrator.engines.breaker import Breaker
from orchestrator.engines.earlier import settle_earlier_attempts, weigh_jobs
from orchestrator.engines.outcome import SweepOutcome
from orchestrator.engines.progress import ProgressView, Silent
from orchestrator.engines.schedule import Schedule
from orchestrator.engines.stop import StopSignals
from orchestrator.errors import DatabaseError, DatabaseFull, DatabaseLocked, DatabaseUnreachable
from orchestrator.launch.probes import ProbeClock, probe_command, probe_groups
from orchestrator.spec.bytes import predict
from orchestrator.spec.plan import Plan
from orchestrator.store.owner import owner_is_alive
from orchestrator.store.rows import SweepChange, SweepRow
from orchestrator.store.store import Store

_AWAY = (DatabaseUnreachable, DatabaseLocked, DatabaseFull)
"""What passes: the next orch takes in what could not be recorded."""


def run_sweep(
    store: Store,
    plan: Plan,
    engine: Engine,
    options: SweepOptions | None = None,
    view: ProgressView | None = None,
) -> SweepOutcome:
    """Run the sweep's runnable jobs on the engine and say what became of them.

    The engine is closed before this returns, whatever happens. SIGINT and SIGTERM are counted while
    it runs: the first stops the running jobs as ``cancelled``, the second kills them at once.

    Raises:
        SweepRunning: a living orch runs that sweep.
        SpecError: the sweep file contradicts what the database holds under that name.
        DatabaseError: the database cannot be used, and no job is running any more. An interrupted
            sweep whose database is only away returns all the same, and its outcome says so.
    """
    options, view, since_s = options or SweepOptions(), view or Silent(), time.monotonic()
    with store.sweep_lock(plan.name), StopSignals() as stop:
        change = store.put_sweep(plan, {cell.key: predict(cell) for cell in plan.cells})
        sweep = store.sweep(plan.name)
        try:
            schedule = _run(store, plan, sweep, engine, options, view, stop, change)
        except BaseException:
            engine.close(kill=True)
            with contextlib.suppress(DatabaseError):  # away: the next orch does it
                store.reap(sweep.sweep_id)
            raise
        engine.close(kill=stop.count > 1)
        # What was killed before it could be recorded: taken in, or lost.
        _settle_last(store, sweep.sweep_id, schedule)
        error = schedule.error
        if error is not None and not (schedule.is_interrupted and isinstance(error, _AWAY)):
            raise error
        if error is None:
            store.set_owner(sweep.sweep_id, None)
        return SweepOutcome(
            sweep=plan.name,
            counts=store.counts(sweep.sweep_id) if error is None else {},
            ran=schedule.tally.finished,
            took_s=time.monotonic() - since_s,
            stop_reason=schedule.stop_reason,
            stop_status=stop.exit_status,
            cancelled_now=schedule.cancelled,
            lost_now=schedule.lost,
            limit=plan.limits.consecutive_failures,
            last_failure=schedule.last_failure,
            unrecorded=f"{error.where}: {error.what}" if error is not None else "",
            continue_with=options.continue_with,
        )


def _run(
    store: Store,
    plan: Plan,
    sweep: SweepRow,
    engine: Engine,
    options: SweepOptions,
    view: ProgressView,
    stop: StopSignals,
    change: SweepChange,
) -> Schedule:
    for line in (*store.warnings, *change.warnings):
        view.notice(f"warning: {line}")
    engine.open(sweep.uid, stop.wake_fd)
    adopted = settle_earlier_attempts(store, sweep.sweep_id, engine)
    queue, skipped = weigh_jobs(store, sweep.sweep_id, engine, retry_failed=options.retry_failed)
    for line in skipped:
        view.notice(line)
    breaker = Breaker(1 if options.fail_fast else plan.limits.consecutive_failures)
    probes = None
    widths = [cell.num_gpus for cell in plan.cells]
    groups = probe_groups(engine.capacity().probe_uuids, widths)
    if options.probe_every_s is not None and groups:
        every_s, command = options.probe_every_s, probe_command()
        probes = ProbeClock(store, sweep.sweep_id, groups, every_s, view.notice, command)
    schedule = Schedule(store, sweep.sweep_id, engine, options, view, stop, breaker, probes)
    try:
        schedule.run(queue, header(plan, engine, store), adopted)
    finally:
        view.end()
        if probes is not None:
            probes.close()
    return schedule


def header(plan: Plan, engine: Engine, store: Store) -> str:
    """``sweep quickstart: 8 jobs (4 cells x 2) -> orch.db · local, fork, CPU, 2 slots``."""
    cells, jobs = len(plan.cells), len(plan.jobs)
    where = engine.capacity().label
    return (
        f"sweep {plan.name}: {jobs} job{'s' if jobs != 1 else ''} ({cells} cell{'s' if cells != 1 else ''}"
        f" x {plan.repeats}) in {store.shown},"
        f" {engine.name} engine{f' ({where})' if where else ''}, {plan.launcher.name}"
    )


def _settle_last(store: Store, sweep_id: int, schedule: Schedule) -> None:
    """Attempts that nobody ended, or whose supervisor left without being able to say so."""
    uids = set(schedule.unsettled)
    try:
        store.reap(sweep_id, lambda attempt: attempt.uid not in uids and owner_is_alive(attempt))
        schedule.count_killed()
    except DatabaseError as error:
        schedule.error = schedule.error or error
