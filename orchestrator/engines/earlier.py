"""What is left of earlier runs of the sweep? Settled before anything new is started."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.engines.base import Engine
from orchestrator.store.rows import AttemptRow, JobRow
from orchestrator.store.status import AGAIN_BY_DEFAULT, AGAIN_IF_ASKED, JobStatus
from orchestrator.store.store import Store


def settle_earlier_attempts(store: Store, sweep_id: int, engine: Engine) -> list[AttemptRow]:
    """Take up the attempts that still live, and settle those whose owner is gone.

    Their spools are taken in first: an attempt whose every rank delivered is ok, not lost, and so is
    an earlier lost one. Returns the attempts that the engine has taken up.
    """
    running = store.running_attempts(sweep_id)
    dead = {attempt.uid for attempt in engine.adopt(running)} if running else set()
    store.reap(sweep_id, lambda attempt: attempt.uid not in dead)
    return [attempt for attempt in running if attempt.uid not in dead]


def weigh_jobs(
    store: Store, sweep_id: int, engine: Engine, *, retry_failed: bool
) -> tuple[list[JobRow], list[str]]:
    """The jobs to run, in running order, and lines for the user about those that are skipped.

    What cannot run here is marked skipped; what was skipped and now can is among the jobs to run.
    """
    again = AGAIN_BY_DEFAULT | (AGAIN_IF_ASKED if retry_failed else frozenset())
    queue: list[JobRow] = []
    refused: dict[str, list[JobRow]] = {}
    unskip: list[int] = []
    for job in store.jobs(sweep_id, again | {JobStatus.skipped}):
        reason = engine.check(job)
        if reason is not None:
            refused.setdefault(reason, []).append(job)
            continue
        if job.status is JobStatus.skipped:
            unskip.append(job.job_id)
            job = replace(job, status=JobStatus.pending, reason=None)
        queue.append(job)
    if refused or unskip:
        skip = [(job.job_id, reason) for reason, jobs in refused.items() for job in jobs]
        store.weigh(skip=skip, unskip=unskip)
    lines = [f"{len(jobs)} job{'s' if len(jobs) > 1 else ''} skipped: {why}" for why, jobs in refused.items()]
    return queue, lines
