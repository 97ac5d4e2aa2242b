"""Which changes of status are allowed. Pure; everything that writes a status asks here."""

from __future__ import annotations

from orchestrator.store.status import JobStatus

S = JobStatus
_ENDS = frozenset({S.ok, S.failed, S.timeout, S.oom_gpu, S.oom_host, S.cancelled, S.lost})
_AGAIN = frozenset({S.pending, S.running, S.skipped})

ATTEMPT: dict[JobStatus, frozenset[JobStatus]] = {
    S.running: _ENDS,
    # Every rank's final record turned up after all: nobody else may say so.
    S.lost: frozenset({S.ok}),
    S.cancelled: frozenset({S.ok}),
} | {status: frozenset() for status in (S.ok, S.failed, S.timeout, S.oom_gpu, S.oom_host)}
"""From -> to, for an attempt; it begins as running."""

JOB: dict[JobStatus, frozenset[JobStatus]] = {
    S.pending: frozenset({S.running, S.skipped, S.cancelled, S.ok}),
    S.running: _ENDS | {S.pending, S.skipped},
    S.ok: frozenset(),
    S.failed: _AGAIN,
    S.timeout: _AGAIN,
    S.oom_gpu: _AGAIN,
    S.oom_host: _AGAIN,
    S.cancelled: _AGAIN | {S.ok},
    S.lost: _AGAIN | {S.ok},
    S.skipped: frozenset({S.pending}),
}
"""From -> to, for a job. Running to pending: a retry. Pending, cancelled or lost to ok: taken in."""

CLAIMABLE = frozenset(status for status, to in JOB.items() if S.running in to)
"""A job with one of these may get an attempt."""


class IllegalTransition(ValueError):
    """A fault in orch: that change of status makes no sense."""


def check_job(old: JobStatus, new: JobStatus) -> None:
    """Raises IllegalTransition unless a job may go from ``old`` to ``new``."""
    _check("job", JOB, old, new)


def check_attempt(old: JobStatus, new: JobStatus) -> None:
    """Raises IllegalTransition unless an attempt may go from ``old`` to ``new``."""
    _check("attempt", ATTEMPT, old, new)


def _check(what: str, table: dict[JobStatus, frozenset[JobStatus]], old: JobStatus, new: JobStatus) -> None:
    if new not in table.get(old, frozenset()):
        raise IllegalTransition(f"{what}: {old} -> {new}")
