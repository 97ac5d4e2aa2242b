"""Which job is started next, and when does the sweep stop? The loop that every engine is turned by."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from orchestrator.engines.base import (
    Ended,
    Engine,
    EngineEvent,
    Lost,
    Notice,
    Progress,
    Started,
    SweepOptions,
)
from orchestrator.engines.breaker import Breaker, is_failure
from orchestrator.engines.outcome import StopReason
from orchestrator.engines.progress import ProgressView, Tally
from orchestrator.engines.stop import StopSignals
from orchestrator.errors import DatabaseError, DatabaseFull, DatabaseLocked, DatabaseUnreachable
from orchestrator.launch.probes import ProbeClock
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import JobStatus, Verdict
from orchestrator.store.store import Store

_ASK_OTHERS_S = 0.05
"""Another orch holds a slot: nothing wakes us when it lets go."""
_CANCEL_POLL_S = 1.0
_DATABASE_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_UNRECORDED = "waits for the database"
"""What a supervisor says of an attempt that is over but for its record."""
_BATCH = 64
"""Attempts begun in one transaction: as many as there is room for, but short enough to let others in."""


class Schedule:
    """The jobs of one run of a sweep, from the queue to their end."""

    def __init__(
        self,
        store: Store,
        sweep_id: int,
        engine: Engine,
        options: SweepOptions,
        view: ProgressView,
        stop: StopSignals,
        breaker: Breaker,
        probes: ProbeClock | None = None,
    ) -> None:
        self._store = store
        self._sweep_id = sweep_id
        self._engine = engine
        self._options = options
        self._view = view
        self._stop = stop
        self._breaker = breaker
        self._probes = probes
        self._queue: deque[JobRow] = deque()
        self._running: dict[str, JobRow] = {}
        self._claimable: dict[int, JobRow] = {}
        self._tries: dict[int, int] = {}
        self._next_cancel_poll_s = 0.0
        self._database_failures = 0
        self._database_retry_at_s = 0.0
        self.tally = Tally()
        self.stop_reason: StopReason | None = None
        self.error: DatabaseError | None = None
        self.last_failure = ""
        self.cancelled = 0
        self.lost = 0
        self.unsettled: list[str] = []
        self._killed: dict[str, JobRow] = {}
        self._stop_deadline_s = float("inf")

    @property
    def is_interrupted(self) -> bool:
        """The user has stopped it."""
        return self.stop_reason in (StopReason.signal, StopReason.cancelled)

    def run(self, queue: Sequence[JobRow], header: str, adopted: Sequence[AttemptRow] = ()) -> None:
        """Run until nothing runs and nothing more is to be started; ``stop_reason`` says why."""
        if self._engine.claims_itself:
            self._store.requeue(self._sweep_id, retry_failed=self._options.retry_failed)
            self._claimable = {job.job_id: job for job in queue}
        else:
            self._queue.extend(queue)
        self.tally.begin(self._store.counts(self._sweep_id), queue)
        self._view.begin(header)
        for attempt in adopted:
            job = self._store.find_job(str(attempt.job_id))
            self._running[attempt.uid] = job
            self.tally.adopted(attempt.uid, job, attempt.host or "")
        while self._turn():
            self._view.update(self.tally)

    def _turn(self) -> bool:
        """Start what there is room for, take in what happened; False when all is over."""
        self._look_for_a_stop()
        probing = self._probes is not None and self._probing(self._probes)
        if self.stop_reason is None and not probing:
            self._fill()
        waiting = self._queue or self._claimable
        if not self._running and not probing and (self.stop_reason is not None or not waiting):
            return False
        others = not probing and bool(self._queue) and getattr(self._engine, "waits_for_others", False)
        self.tally.waits_for_others = others
        for event in self._engine.poll(self._patience_s(probing)):
            self._take(event)
        return True

    def _fill(self) -> None:
        """Begin the attempts that there is room for, in the order of the queue."""
        if time.monotonic() < self._database_retry_at_s:
            return
        if self._engine.claims_itself:
            self._engine.want(len(self._claimable))
            return
        batch: list[tuple[JobRow, NewAttempt]] = []
        while self._queue and len(batch) < self._most_at_once():
            draft = self._engine.reserve(self._queue[0])
            if draft is None:
                break
            batch.append((self._queue.popleft(), draft))
        if batch:
            self._begin(batch)

    def _most_at_once(self) -> int:
        """Once jobs fail in a row, no more at once than may still fail: the breaker stops exactly."""
        if not self._breaker.in_a_row:
            return _BATCH
        return max(min(_BATCH, self._breaker.limit - self._breaker.in_a_row - len(self._running)), 0)

    def _begin(self, batch: list[tuple[JobRow, NewAttempt]]) -> None:
        try:
            attempts = self._store.begin_attempts([(job.job_id, draft) for job, draft in batch])
        except (DatabaseFull, DatabaseLocked, DatabaseUnreachable) as error:
            self._put_back(batch)
            self._database_is_away(error)
            return
        except DatabaseError as error:
            self._put_back(batch)
            self.error, self.stop_reason = error, StopReason.database
            return
        if self._database_failures:
            self._database_failures = 0
            self._view.notice("the database is back")
        for (job, draft), attempt in zip(batch, attempts, strict=True):
            if attempt is None:  # somebody else's now: ended, cancelled or claimed meanwhile
                self._engine.release(draft.uid)
                continue
            self._running[attempt.uid] = job
            self.tally.started(attempt.uid, job, "")
            self._engine.submit(job, attempt, self._tries.get(job.job_id, 0))

    def _put_back(self, batch: list[tuple[JobRow, NewAttempt]]) -> None:
        for job, draft in reversed(batch):
            self._engine.release(draft.uid)
            self._queue.appendleft(job)

    def _database_is_away(self, error: DatabaseError) -> None:
        """Running jobs finish into their spools; no new attempt starts until it is back."""
        if self._database_failures == 0:
            self._view.notice(f"{error.render()}; running jobs finish, no new one starts until it is back")
        pause_s = _DATABASE_RETRY_S[min(self._database_failures, len(_DATABASE_RETRY_S) - 1)]
        self._database_failures += 1
        self._database_retry_at_s = time.monotonic() + pause_s

    def _take(self, event: EngineEvent) -> None:
        if isinstance(event, Ended):
            self._ended(event)
        elif isinstance(event, Lost):
            self._lost(event)
        elif isinstance(event, Notice):
            self._view.notice(event.text)
        else:
            self._follow(event)

    def _follow(self, event: Started | Progress) -> None:
        if isinstance(event, Started) and event.job_id in self._claimable:
            job = self._claimable.pop(event.job_id)
            self._running[event.attempt_uid] = job
            self.tally.started(event.attempt_uid, job, event.where)
        entry = self.tally.running.get(event.attempt_uid)
        if entry is not None:
            if isinstance(event, Started):
                self.tally.launched(entry, event.where)
            elif isinstance(event, Progress):
                entry.iteration, entry.of = event.iteration or entry.iteration, event.of or entry.of
                entry.phase = entry.phase if event.phase is None else event.phase

    def _ended(self, event: Ended) -> None:
        if event.job_id is not None and event.attempt_uid not in self._running:
            self._follow(Started(event.attempt_uid, job_id=event.job_id))  # too short to be seen running
        job = self._running.pop(event.attempt_uid, None)
        status = JobStatus.pending if event.retry else event.verdict.status
        self.tally.ended(event.attempt_uid, status)
        if job is None:
            return
        if is_failure(event.verdict.status):
            self._view.failed(job, event.verdict, retry=event.retry)
        if event.retry:
            self._again(job)
            return
        self._tries.pop(job.job_id, None)
        self._count(event.verdict.status)
        self._breaker.ended(status)
        if self._breaker.tripped and self.stop_reason is None:
            self.stop_reason = StopReason.fail_fast if self._options.fail_fast else StopReason.in_a_row
            self.last_failure = event.verdict.message or str(status)

    def _lost(self, event: Lost) -> None:
        """Who supervised it is gone: take in what its ranks delivered, else try it again."""
        job = self._running.get(event.attempt_uid)
        if job is None:
            return
        try:
            self._store.reap(self._sweep_id, lambda attempt: attempt.uid != event.attempt_uid)
            status = self._store.find_job(str(job.job_id)).status
        except DatabaseError as error:
            self._database_is_away(error)
            self.unsettled.append(event.attempt_uid)
            status = JobStatus.lost
        retry = (
            status is JobStatus.lost
            and event.attempt_uid not in self.unsettled
            and self._tries.get(job.job_id, 0) < self._options.retries
            and self.stop_reason is None
        )
        self._ended(Ended(event.attempt_uid, Verdict(status, None, event.message), retry))

    def _again(self, job: JobRow) -> None:
        self._tries[job.job_id] = self._tries.get(job.job_id, 0) + 1
        if self._engine.claims_itself:
            self._claimable[job.job_id] = job
            # Pilots claim pending jobs alone, and one that was lost with its pilot is not.
            self._store.requeue(self._sweep_id)
        else:
            self._queue.appendleft(job)

    def _look_for_a_stop(self) -> None:
        now_s = time.monotonic()
        if self._stop.count:
            self._stop.drain()
            self._stop_running(StopReason.signal)
            if self._stop.count > 1:
                self._kill_running()
        elif now_s >= self._next_cancel_poll_s:
            self._next_cancel_poll_s = now_s + _CANCEL_POLL_S
            if self._cancel_requested():
                self._stop_running(StopReason.cancelled)
        if self._running and (now_s >= self._stop_deadline_s or self._is_kept_by_the_database()):
            self._kill_running()

    def _is_kept_by_the_database(self) -> bool:
        """Whether all that is left of a sweep that must end cannot be recorded; the spools keep it."""
        phases = {entry.phase for uid, entry in self.tally.running.items() if uid in self._running}
        return (self.is_interrupted or self.stop_reason is StopReason.database) and phases == {_UNRECORDED}

    def _cancel_requested(self) -> bool:
        """Also if another orch has taken the sweep while the server was away."""
        try:
            return self._store.cancel_requested(self._sweep_id) or not self._store.still_locked()
        except DatabaseError:  # away: nobody could have asked either
            return False

    def _stop_running(self, reason: StopReason) -> None:
        """Stop what runs; it ends as ``cancelled``."""
        if self.is_interrupted:
            return
        self.stop_reason = reason
        self._stop_deadline_s = time.monotonic() + self._options.stop_within_s
        running = len(self._running)
        if running:
            again = "; again to kill them at once" if reason is StopReason.signal else ""
            self._view.notice(f"stopping {running} running job{'s' if running > 1 else ''}{again}")
        for uid in list(self._running):
            self._engine.cancel(uid)

    def _kill_running(self) -> None:
        self._killed |= self._running
        self.unsettled += self._running
        self._running.clear()
        self._engine.close(kill=True)

    def count_killed(self) -> None:
        """Once the engine is closed and the rest is settled: what has become of the jobs it killed."""
        if not self._killed:
            return
        statuses = {job.job_id: job.status for job in self._store.jobs(self._sweep_id, gone=True)}
        for uid, job in self._killed.items():
            status = statuses.get(job.job_id, JobStatus.running)
            if status is not JobStatus.running:
                self.tally.ended(uid, status)
                self._count(status)

    def _count(self, status: JobStatus) -> None:
        self.cancelled += status is JobStatus.cancelled
        self.lost += status is JobStatus.lost

    def _probing(self, probes: ProbeClock) -> bool:
        """Let a due link probe have the host to itself; True while it has or waits for it."""
        over = self.stop_reason is not None
        try:
            return probes.turn(idle=not self._running, over=over, last=not self._queue and not self._running)
        except DatabaseError as error:
            self._view.notice(f"a link probe could not be kept: {error.render()}")
            return False

    def _patience_s(self, probing: bool) -> float:
        """How long nothing can happen that ``poll`` would not see."""
        waits = [max(self._next_cancel_poll_s - time.monotonic(), 0.0)]
        if probing or getattr(self._engine, "waits_for_others", False):
            waits.append(_ASK_OTHERS_S)
        if self._database_failures and self._queue:
            waits.append(max(self._database_retry_at_s - time.monotonic(), 0.0))
        return min(waits)
