"""How far is the sweep, and how long will it take? Figures only; drawing is the command line's."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.engines.breaker import is_failure
from orchestrator.store.rows import JobRow
from orchestrator.store.status import JobStatus, Verdict


@dataclass(slots=True)
class RunningJob:
    """One running attempt, as far as is known."""

    job: JobRow
    since_s: float
    where: str = ""
    phase: str = ""
    iteration: int = 0
    of: int = 0

    def describe(self) -> str:
        """``3f9ac1 round 2 on GPU 0 (iteration 6/10, timed)``."""
        inner = [f"iteration {self.iteration}/{self.of}"] if self.of else []
        inner += [self.phase] if self.phase else []
        where = f" on {self.where}" if self.where else ""
        return f"{self.job.cell_values.short} round {self.job.repeat}{where}" + (
            f" ({', '.join(inner)})" if inner else ""
        )


@dataclass(slots=True)
class _Mean:
    seconds: float = 0.0
    count: int = 0


@dataclass(slots=True)
class Tally:
    """Counts of the sweep's jobs, and the time left from the jobs that this run has finished.

    Attributes:
        waits_for_others: the next job waits for slots that another orch uses.
    """

    counts: dict[JobStatus, int] = field(default_factory=dict)
    running: dict[str, RunningJob] = field(default_factory=dict)
    finished: int = 0
    waits_for_others: bool = False
    _waiting: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _by_cell: dict[str, _Mean] = field(default_factory=dict)
    _all: _Mean = field(default_factory=_Mean)
    _first_s: float | None = None
    _has_launched: bool = False
    _last_s: float = 0.0

    @property
    def total(self) -> int:
        """Jobs of the sweep."""
        return sum(self.counts.values())

    @property
    def ok(self) -> int:
        """Jobs that are ok, earlier runs included."""
        return self.counts.get(JobStatus.ok, 0)

    @property
    def failed(self) -> int:
        """Jobs that failed in whatever way, earlier runs included."""
        return sum(n for status, n in self.counts.items() if is_failure(status))

    @property
    def done(self) -> int:
        """Jobs that are over."""
        return sum(n for status, n in self.counts.items() if status.is_final)

    def begin(self, counts: Mapping[JobStatus, int], queue: Iterable[JobRow]) -> None:
        """The run starts: what stands in the database, and what will be run."""
        self.counts = dict(counts)
        for job in queue:
            self._waiting[job.cell] += 1

    def started(self, attempt_uid: str, job: JobRow, where: str) -> None:
        """An attempt was submitted."""
        now_s = time.monotonic()
        self._first_s = now_s if self._first_s is None else self._first_s
        self.running[attempt_uid] = RunningJob(job, now_s, where)
        self._move(job.status, JobStatus.running)

    def launched(self, entry: RunningJob, where: str) -> None:
        """Its ranks are being started: what it waited for before says nothing about the next ones."""
        entry.since_s = time.monotonic()
        entry.where = where or entry.where
        if not self._has_launched:
            self._first_s, self._has_launched = entry.since_s, True
        if entry.phase != "timed":
            entry.phase = ""

    def adopted(self, attempt_uid: str, job: JobRow, where: str) -> None:
        """An attempt of an earlier run was taken up; the database counts it as running already."""
        self._waiting[job.cell] += 1
        self.running[attempt_uid] = RunningJob(job, time.monotonic(), where)

    def ended(self, attempt_uid: str, status: JobStatus) -> RunningJob | None:
        """An attempt is over; ``pending`` = it will be tried again."""
        entry = self.running.pop(attempt_uid, None)
        if entry is None:
            return None
        self._move(JobStatus.running, status)
        if status is not JobStatus.pending:
            self._last_s = time.monotonic()
            self.finished += 1
            self._waiting[entry.job.cell] -= 1
            for mean in (self._all, self._by_cell.setdefault(entry.job.cell, _Mean())):
                mean.seconds += self._last_s - entry.since_s
                mean.count += 1
        return entry

    def left_s(self) -> float | None:
        """Seconds until the sweep is done, or ``None`` before the first job is.

        A job that waits takes as long as its cell took on average, a cell that never ran as long as
        all took; as many run at once as did so far.
        """
        if not self._all.count or self._first_s is None:
            return None
        overall_s = self._all.seconds / self._all.count
        work_s = 0.0
        for cell, waiting in self._waiting.items():
            mean = self._by_cell.get(cell)
            work_s += waiting * (mean.seconds / mean.count if mean else overall_s)
        elapsed_s = max(self._last_s - self._first_s, 1e-9)
        return work_s / max(self._all.seconds / elapsed_s, 1e-9)

    def _move(self, before: JobStatus, after: JobStatus) -> None:
        self.counts[before] = max(self.counts.get(before, 0) - 1, 0)
        self.counts[after] = self.counts.get(after, 0) + 1


class ProgressView(Protocol):
    """Shows a sweep while it runs. Methods return at once; drawing is throttled by the view."""

    def begin(self, header: str) -> None:
        """The run begins."""

    def update(self, tally: Tally) -> None:
        """Something changed."""

    def failed(self, job: JobRow, verdict: Verdict, *, retry: bool) -> None:
        """A job failed; with ``retry`` it will be tried again."""

    def notice(self, text: str) -> None:
        """One line for the user."""

    def end(self) -> None:
        """The run is over."""


class Silent:
    """Shows nothing."""

    def begin(self, header: str) -> None:
        """Nothing."""

    def update(self, tally: Tally) -> None:
        """Nothing."""

    def failed(self, job: JobRow, verdict: Verdict, *, retry: bool) -> None:
        """Nothing."""

    def notice(self, text: str) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""
