"""Which changes of status are allowed. Pure; everything that writes a status asks here."""

from __future__ import annotations

from orchestrator.store.status import JobStatus

S = JobStatus
_ENDS = frozenset({S.OK, S.FAILED, S.TIMEOUT, S.OOM_GPU, S.OOM_HOST, S.CANCELLED, S.LOST})
_AGAIN = frozenset({S.PENDING, S.RUNNING, S.SKIPPED})

ATTEMPT: dict[JobStatus, frozenset[JobStatus]] = {
    S.RUNNING: _ENDS,
    # Every rank's final record turned up after all: nobody else may say so.
    S.LOST: frozenset({S.OK}),
    S.CANCELLED: frozenset({S.OK}),
} | {status: frozenset() for status in (S.OK, S.FAILED, S.TIMEOUT, S.OOM_GPU, S.OOM_HOST)}
"""From -> to, for an attempt; it begins as running."""

JOB: dict[JobStatus, frozenset[JobStatus]] = {
    S.PENDING: frozenset({S.RUNNING, S.SKIPPED, S.CANCELLED, S.OK}),
    S.RUNNING: _ENDS | {S.PENDING, S.SKIPPED},
    S.OK: frozenset(),
    S.FAILED: _AGAIN,
    S.TIMEOUT: _AGAIN,
    S.OOM_GPU: _AGAIN,
    S.OOM_HOST: _AGAIN,
    S.CANCELLED: _AGAIN | {S.OK},
    S.LOST: _AGAIN | {S.OK},
    S.SKIPPED: frozenset({S.PENDING}),
}
"""From -> to, for a job. To pending from running: a retry. To ok from pending, cancelled or lost: taken in."""

CLAIMABLE = frozenset(status for status, to in JOB.items() if S.RUNNING in to)
"""A job with one of these may get an attempt."""


class IllegalTransition(ValueError):
    """A fault in orch: that change of status makes no sense."""


def check_job(old: JobStatus, new: JobStatus) -> None:
    """Raises IllegalTransition unless a job may go from ``old`` to ``new``."""
    _check("job", JOB, old, new)


def check_attempt(old: JobStatus, new: JobStatus) -> None:
    """Raises IllegalTransition unless an attempt may go from ``old`` to ``new``."""
    _check("attempt", ATTEMPT, old, new)


def _check(
    what: str, table: dict[JobStatus, frozenset[JobStatus]], old: JobStatus, new: JobStatus
) -> None:
    if new not in table.get(old, frozenset()):
        raise IllegalTransition(f"{what}: {old} -> {new}")
