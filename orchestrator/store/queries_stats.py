"""The reads behind ``orch compare``, ``predict`` and the time that ``orch plan`` expects, as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.store.queries_report import Parameter, Reads, fetch

if TYPE_CHECKING:
    from pandas import DataFrame


def _frame(store: Reads, query: str, **parameters: Parameter) -> DataFrame:
    import pandas as pd

    rows = fetch(store, query, **parameters)
    return pd.DataFrame(rows.values, columns=list(rows.columns))


_SWEEP_JOBS = "SELECT * FROM job_summary WHERE sweep_id = :sweep_id ORDER BY position, job_id"


def sweep_jobs(store: Reads, sweep_id: int) -> DataFrame:
    """Every job of a sweep: all columns of ``job_summary``, in running order."""
    return _frame(store, _SWEEP_JOBS, sweep_id=sweep_id)


_SWEEP_ENVIRONMENTS = """
SELECT * FROM environment WHERE environment_id IN (
    SELECT a.environment_id FROM attempt a JOIN job j ON j.job_id = a.job_id WHERE j.sweep_id = :sweep_id)
ORDER BY environment_id
"""


def sweep_environments(store: Reads, sweep_id: int) -> DataFrame:
    """The stacks on which attempts of a sweep ran."""
    return _frame(store, _SWEEP_ENVIRONMENTS, sweep_id=sweep_id)


_MEASURED = """
SELECT s.*, e.accelerator, e.gpu_name, e.torch, e.deepspeed, e.driver, e.ram_bytes,
       e.gpu_bytes AS device_bytes, e.host AS node
FROM job_summary s JOIN environment e ON e.environment_id = s.environment_id
WHERE s.status = 'ok' AND s.is_valid AND s.offload_s_median IS NOT NULL
ORDER BY s.job_id
"""


def measured_jobs(store: Reads) -> DataFrame:
    """Every valid job of every sweep beside the stack it ran on; ``node`` is the stack's host."""
    return _frame(store, _MEASURED)


_WALL_TIMES = """
SELECT s.cell, s.wall_s, s.loop_s, s.iteration, s.instrumented, s.predicted_copied_bytes, s.pin_memory,
       s.non_blocking, s.dwell_s, s.num_gpus, s.num_nodes, s.engine, s.launch_mode, s.host
FROM job_summary s
WHERE s.attempt_status = 'ok' AND s.wall_s IS NOT NULL AND s.loop_s IS NOT NULL
ORDER BY s.job_id DESC LIMIT :most
"""


def wall_times(store: Reads, most: int = 5000) -> DataFrame:
    """How long the latest good attempts took, newest first."""
    return _frame(store, _WALL_TIMES, most=most)
