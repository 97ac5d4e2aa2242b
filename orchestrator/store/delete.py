"""Deletes a sweep with everything that hangs on it, but the measurements of the link."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, update

from orchestrator.errors import SweepRunning
from orchestrator.store.sweeps import find_sweep
from orchestrator.store.tables import (
    attempt,
    attempt_rank,
    event,
    iteration,
    job,
    job_result,
    link_probe,
    memory_sample,
    sweep,
)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What went; ``run_dirs`` are the folders of its attempts, which stay on disk."""

    name: str
    jobs: int
    attempts: int
    run_dirs: tuple[str, ...]


def delete_sweep(connection: Connection, name: str) -> Deleted:
    """Delete the sweep. Raises SweepRunning if an attempt of it runs, OrchError if there is none."""
    found = find_sweep(connection, name)
    jobs = select(job.c.job_id).where(job.c.sweep_id == found.sweep_id)
    mine = attempt.c.job_id.in_(jobs)
    rows = connection.execute(select(attempt.c.run_dir, attempt.c.status).where(mine)).all()
    if any(row.status == "running" for row in rows):
        raise SweepRunning(f"sweep {name} has attempts that run", "", f"stop it first: orch cancel {name}")
    number = len(connection.execute(jobs).all())
    attempts = select(attempt.c.attempt_id).where(mine)
    connection.execute(delete(job_result).where(job_result.c.job_id.in_(jobs)))
    for table in (iteration, memory_sample, attempt_rank):
        connection.execute(delete(table).where(table.c.attempt_id.in_(attempts)))
    connection.execute(delete(attempt).where(mine))
    # What the link gave is a fact about the host: jobs of other sweeps may rest on it.
    connection.execute(
        update(link_probe).where(link_probe.c.sweep_id == found.sweep_id).values(sweep_id=None)
    )
    for table in (event, job):
        connection.execute(delete(table).where(table.c.sweep_id == found.sweep_id))
    connection.execute(delete(sweep).where(sweep.c.sweep_id == found.sweep_id))
    return Deleted(found.name, number, len(rows), tuple(row.run_dir for row in rows))
