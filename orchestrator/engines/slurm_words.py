"""What does Slurm's word on a job mean for its attempt?"""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.engines.remote import Word
from orchestrator.engines.slurm_commands import SlurmJob, SlurmState
from orchestrator.store.status import JobStatus

_LOG_TAIL_BYTES = 1 << 16
_OUT_OF_MEMORY = re.compile(
    rb"^slurmstepd.*(?:exceeded memory limit|Exceeded job memory limit|oom-kill event)", re.MULTILINE
)


def word_of(job: SlurmJob) -> Word:
    """What the end of a Slurm job means for its attempt."""
    where = f"Slurm job {job.job_id}"
    match job.state:
        case SlurmState.CANCELLED:
            return Word(JobStatus.cancelled, f"{where} was cancelled by hand")
        case SlurmState.TIMEOUT:
            return Word(JobStatus.timeout, f"{where} reached the time limit of its allocation")
        case SlurmState.OUT_OF_MEMORY:
            return out_of_memory(job.job_id)
        case SlurmState.NODE_LOST:
            return Word(JobStatus.lost, f"{where} lost its node {job.nodes} ({job.raw_state})", retry=True)
        case SlurmState.PREEMPTED:
            return Word(JobStatus.lost, f"{where} was preempted", retry=True)
    return Word(None, f"Slurm says {job.raw_state} of job {job.job_id}")


def out_of_memory(job_id: str) -> Word:
    """The allocation's memory ran out."""
    return Word(JobStatus.oom_host, f"Slurm job {job_id} was killed: the memory of its allocation ran out")


def log_tells_of_memory(log: Path) -> bool:
    """Whether slurmstepd has written that a step took more memory than it has.

    The job's state does not say so where slurmstepd itself watches the limit (``OverMemoryKill``: FAILED,
    JobLaunchFailure), nor where the step of a job of several nodes was killed.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, 2) - _LOG_TAIL_BYTES, 0))
            return _OUT_OF_MEMORY.search(file.read()) is not None
    except OSError:
        return False


def is_requeued(job: SlurmJob) -> bool:
    """Whether Slurm is about to run it a second time."""
    return job.raw_state.startswith(("REQUEUE", "SPECIAL_EXIT"))
