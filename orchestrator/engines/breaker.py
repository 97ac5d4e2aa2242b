"""When is a sweep stopped because everything fails?"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.store.status import JobStatus

_FAILURES = frozenset(
    {JobStatus.failed, JobStatus.timeout, JobStatus.oom_gpu, JobStatus.oom_host, JobStatus.lost}
)


def is_failure(status: JobStatus) -> bool:
    """Whether a job that ended so counts against the sweep's exit status."""
    return status in _FAILURES


@dataclass(slots=True)
class Breaker:
    """Trips after ``limit`` failed jobs in a row, in the order in which they ended.

    Attributes:
        limit: failures in a row; 0 = never trips. ``--fail-fast`` is a limit of 1.
        in_a_row: failures since the last job that was ok.
    """

    limit: int
    in_a_row: int = 0

    @property
    def tripped(self) -> bool:
        """No further job is to be started."""
        return 0 < self.limit <= self.in_a_row

    def ended(self, status: JobStatus) -> None:
        """One job is over for good (a retry is not). Cancelled and skipped jobs say nothing."""
        if is_failure(status):
            if not self.tripped:
                self.in_a_row += 1
        elif status is JobStatus.ok and not self.tripped:
            self.in_a_row = 0
