"""What became of one run of a sweep: the exit status and the last lines for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.engines.breaker import is_failure
from orchestrator.store.status import JobStatus


class StopReason(StrEnum):
    """Why a sweep ended before every job had run."""

    signal = "signal"
    cancelled = "cancelled"
    in_a_row = "in_a_row"
    fail_fast = "fail_fast"
    database = "database"


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What became of one run of a sweep.

    Attributes:
        counts: see ``Store.counts``.
        ran: jobs that ended in this run.
        took_s: from the lock to the last job's end.
        stop_reason: why it ended before every job had run; ``None`` if it did not.
        stop_status: 128 + the signal, if one came.
        cancelled_now: jobs that were cancelled in this run, by orch or by a scheduler's command.
        lost_now: jobs that this run has lost and not tried again.
        unrecorded: why the database could not be told all; the counts are unknown then.
        limit: failures in a row at which it stops.
    """

    sweep: str
    counts: Mapping[JobStatus, int]
    ran: int
    took_s: float
    stop_reason: StopReason | None = None
    stop_status: int = 0
    cancelled_now: int = 0
    lost_now: int = 0
    limit: int = 0
    last_failure: str = ""
    unrecorded: str = ""
    continue_with: str = "orch sweep"

    @property
    def interrupted(self) -> bool:
        """The user stopped it: nobody waits for a report."""
        return self.stop_reason in (StopReason.signal, StopReason.cancelled)

    @property
    def failed(self) -> int:
        """Jobs that failed in whatever way."""
        return sum(count for status, count in self.counts.items() if is_failure(status))

    @property
    def exit_status(self) -> int:
        """Of ``orch sweep``: the signal's, else 1 if a job failed, was cancelled or is not settled."""
        if self.stop_reason is StopReason.signal:
            return self.stop_status
        left = self.counts.get(JobStatus.running, 0) + self.cancelled_now
        return 1 if self.failed or left or self.stop_reason is not None else 0

    def lines(self) -> list[str]:
        """The last lines for the user."""
        if self.unrecorded:
            line = (
                f"sweep {self.sweep}: stopped, but not all of it is recorded ({self.unrecorded});"
                " what was measured lies in the run directories, and the next orch sweep takes it in."
                f" Continue with: {self.continue_with}"
            )
            return [line]
        counts = ", ".join(
            f"{self.counts[status]} {status}" for status in JobStatus if self.counts.get(status)
        )
        lines = [f"sweep {self.sweep}: {counts or 'no jobs'}; {self.ran} ran in {self.took_s:.1f} s"]
        left = self.counts.get(JobStatus.pending, 0)
        staying = "1 job stays pending" if left == 1 else f"{left} jobs stay pending"
        if unsettled := self.counts.get(JobStatus.running, 0):
            lines.append(
                f"{unsettled} still marked running, their end not recorded. Settle with: {self._again()}"
            )
        if self.stop_reason is StopReason.in_a_row:
            lines.append(
                f"stopped after {self.limit} failures in a row ({self.last_failure});"
                f" {staying}. Mend it, then continue with: {self._again()}"
            )
        elif self.stop_reason is StopReason.fail_fast:
            lines.append(
                f"stopped at the first failure ({self.last_failure}); {staying}."
                f" Continue with: {self._again()}"
            )
        elif self.interrupted:
            jobs = "job" if self.cancelled_now == 1 else "jobs"
            by = " from elsewhere" if self.stop_reason is StopReason.cancelled else ""
            lost = self.lost_now or "nothing"
            lines.append(
                f"stopped{by}: {self.cancelled_now} running {jobs} cancelled, {lost} lost."
                f" Continue with: {self.continue_with}"
            )
        elif self.cancelled_now:
            lines.append(f"{self.cancelled_now} cancelled by hand. Run with: {self.continue_with}")
        elif self.failed:
            is_lost = self.failed == self.counts.get(JobStatus.lost, 0)
            again = self.continue_with if is_lost else self._again()
            lines.append(f"{self.failed} {'lost' if is_lost else 'failed'}. Run again with: {again}")
        return lines

    def _again(self) -> str:
        retry = "--retry-failed"
        return self.continue_with if retry in self.continue_with else f"{self.continue_with} {retry}"
