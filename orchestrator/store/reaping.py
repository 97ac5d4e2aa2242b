"""Attempts whose owner is gone, and results that turned up late."""

from __future__ import annotations

from sqlalchemy import Connection, select

from orchestrator.store.attempts import find_attempt, find_attempts
from orchestrator.store.ending import adopt_as_ok, end
from orchestrator.store.judge import Records, verdict
from orchestrator.store.rows import AttemptEnd, AttemptRow
from orchestrator.store.status import JobStatus
from orchestrator.store.tables import attempt, attempt_rank, iteration, job


def records(connection: Connection, attempt_id: int, ranks: int) -> Records:
    """What the database holds of the attempt."""
    final = select(attempt_rank.c.rank).where(
        attempt_rank.c.attempt_id == attempt_id, attempt_rank.c.final_at.is_not(None)
    )
    mine = select(iteration.c.rank).where(iteration.c.attempt_id == attempt_id).distinct()
    return Records(
        ranks,
        final=frozenset(connection.execute(final).scalars()),
        changed=frozenset(connection.execute(mine.where(~iteration.c.states_intact)).scalars()),
        misplaced=frozenset(connection.execute(mine.where(~iteration.c.devices_ok)).scalars()),
    )


def settle_dead(connection: Connection, one: AttemptRow) -> AttemptRow | None:
    """End an attempt whose owner is gone: by its records if all are there, else as lost.

    None if it is no longer running: somebody else was faster.
    """
    judged = verdict(records(connection, one.attempt_id, one.ranks))
    now = find_attempt(connection, one.attempt_id)
    if now is None or now.status is not JobStatus.running or now.owner != one.owner:
        return None
    if judged is not None and judged.status is JobStatus.ok:
        if not adopt_as_ok(
            connection, one.attempt_id, "every rank had delivered; taken in after its owner died"
        ):
            return None
    elif judged is not None:
        end(connection, AttemptEnd(one.attempt_id, judged.status, judged.failure_kind, judged.message))
    else:
        message = f"its owner is gone ({one.owner})" if one.owner else "it had no owner"
        end(connection, AttemptEnd(one.attempt_id, JobStatus.lost, None, message))
    return find_attempt(connection, one.attempt_id)


def given_up(connection: Connection, sweep_id: int) -> list[AttemptRow]:
    """Lost and cancelled attempts of jobs that would be run again: their ranks may have delivered late."""
    return find_attempts(
        connection,
        job.c.sweep_id == sweep_id,
        job.c.in_spec,
        job.c.status.in_(["pending", "lost", "cancelled"]),
        attempt.c.status.in_(["lost", "cancelled"]),
    )


def settle_late(connection: Connection, one: AttemptRow) -> bool:
    """Make a given-up attempt ok if every rank's records are there after all."""
    judged = verdict(records(connection, one.attempt_id, one.ranks))
    if judged is None or judged.status is not JobStatus.ok:
        return False
    return adopt_as_ok(connection, one.attempt_id, "every rank had delivered after all")
