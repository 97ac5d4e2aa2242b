"""What the engines on other hosts share: the orders of an attempt's nodes, its judgement, its recording.

Slurm and Ray only run nodes. Each node reports what it saw; here all reports and the scheduler's word
become one verdict, which goes into the database by the same door as every other.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.engines.admission import need_of
from orchestrator.engines.base import Ended, EngineEvent
from orchestrator.launch.finisher import Finish, Finisher
from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.launch.orders import retries_left, whole_order
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.report import NodeReport, merge_columns, merge_facts
from orchestrator.launch.setting import RunSetting
from orchestrator.launch.spool import SpoolTail
from orchestrator.launch.verdict import AttemptFacts, RankFacts, Stop, judge, may_pass
from orchestrator.store.rows import AttemptEnd, AttemptRow, JobRow
from orchestrator.store.status import FailureKind, JobStatus, Verdict

_LAST_WRITES_S = 30.0


@dataclass(frozen=True, slots=True)
class Word:
    """What the scheduler says of the end of a job.

    Attributes:
        status: what it makes of the attempt; None = the ranks must tell.
        message: for people; also where ``status`` is None.
        retry: the cluster's fault, not the job's.
    """

    status: JobStatus | None = None
    message: str = ""
    retry: bool = False


@dataclass(slots=True)
class Followed:
    """An attempt that runs somewhere else.

    Attributes:
        orders: one a node; empty for an attempt of an earlier orch whose order file is gone.
        cancelled: orch has asked for its end.
    """

    attempt: AttemptRow
    orders: tuple[LaunchOrder, ...]
    tries: int = 0
    cancelled: bool = False

    @property
    def uid(self) -> str:
        """The attempt's uid."""
        return self.attempt.uid

    @property
    def paths(self) -> AttemptPaths:
        """Its files, as orch sees them."""
        return AttemptPaths(Path(self.attempt.run_dir))

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return max(len(self.orders), 1)


def node_orders(
    setting: RunSetting, job: JobRow, attempt: AttemptRow, accelerator: str
) -> tuple[LaunchOrder, ...]:
    """The attempt as one order a node; which devices, each node finds out."""
    need = need_of(job)
    whole = replace(
        whole_order(setting, job, attempt, accelerator),
        finish=False,
        probe_every_s=setting.probe_every_s,
        probe_command=setting.probe_command,
    )
    local = range(need.num_gpus)
    copies = tuple(tuple(RankPlacement(rank, rank) for rank in local) for _ in range(need.contention - 1))
    return tuple(
        replace(
            whole,
            node_rank=node,
            ranks=tuple(RankPlacement(node * need.num_gpus + rank, rank) for rank in local),
            neighbours=copies,
        )
        for node in range(need.nodes)
    )


def conclude(
    facts: AttemptFacts, word: Word, *, cancelled: bool, retries_left: int, infrastructure_retries_left: int
) -> tuple[Verdict, bool]:
    """The verdict on an attempt, and whether the job is worth another one.

    What every rank has delivered counts whatever the scheduler says; then what a node itself decided
    (a timeout, a hang); then what orch or the scheduler did to the job; then what the ranks tell.
    """
    if facts.ranks and all(rank.final for rank in facts.ranks):
        return judge(facts), False
    if facts.stop not in (None, Stop.CANCELLED):
        verdict = judge(facts)
        return verdict, may_pass(verdict, facts.stop, retries_left, infrastructure_retries_left)
    if cancelled:
        return Verdict(JobStatus.cancelled, None, "cancelled by the user"), False
    if word.status is not None:
        return Verdict(word.status, None, word.message), word.retry and retries_left > 0
    if facts.stop is Stop.CANCELLED:
        return Verdict(JobStatus.lost, None, facts.stop_detail or "its node was stopped"), retries_left > 0
    verdict = judge(facts)
    if verdict.failure_kind is FailureKind.no_result and word.message:
        verdict = replace(verdict, message=f"{verdict.message} ({word.message})")
    return verdict, may_pass(verdict, None, retries_left, infrastructure_retries_left)


def facts_from_spools(followed: Followed, ranks: Sequence[int]) -> list[RankFacts]:
    """What ranks have recorded, whose node left no report."""
    found = []
    for rank in ranks:
        tail = SpoolTail(followed.paths.spool(rank), rank)
        tail.read()
        found.append(
            RankFacts(
                rank=rank,
                final=tail.final,
                error=tail.error,
                states_intact=tail.states_intact,
                devices_ok=tail.devices_ok,
            )
        )
    return found


@dataclass
class Recorder:
    """Ends attempts in the database without keeping the engine waiting; tells when it has been done.

    Attributes:
        wake_fd: readable when ``take`` has something.
    """

    setting: RunSetting
    wake_fd: int = -1
    _write_fd: int = -1
    _done: deque[Callable[[], None]] = field(default_factory=deque)
    _events: list[EngineEvent] = field(default_factory=list)
    _alive: set[int] = field(default_factory=set)
    _finisher: Finisher | None = None

    def open(self) -> None:
        """Start the thread that speaks to the database."""
        self.wake_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._finisher = Finisher(self.setting.db_url, self.post)

    def close(self) -> None:
        """Write what is left; safe to repeat."""
        finisher, self._finisher = self._finisher, None
        if finisher is not None:
            finisher.close(_LAST_WRITES_S)
            os.close(self.wake_fd)
            os.close(self._write_fd)
            self.wake_fd = self._write_fd = -1

    def begin(self, followed: Followed) -> None:
        """The attempt is followed: it gets heartbeats."""
        self._alive.add(followed.attempt.attempt_id)
        self._keep_alive()

    def update(self, followed: Followed, **columns: object) -> None:
        """Set columns of a running attempt, soon."""
        if self._finisher is not None:
            self._finisher.update(followed.attempt.attempt_id, columns)

    def end(self, followed: Followed, reports: Sequence[NodeReport], word: Word) -> None:
        """Judge the attempt, take its records in, end it; ``take`` tells afterwards."""
        attempt = followed.attempt
        told = {rank.rank for report in reports for rank in report.facts.ranks}
        silent = [rank for rank in range(attempt.ranks) if rank not in told]
        facts = merge_facts(reports, facts_from_spools(followed, silent))
        left, infrastructure_left = retries_left(self.setting, followed.tries)
        verdict, retry = conclude(
            facts,
            word,
            cancelled=followed.cancelled,
            retries_left=left,
            infrastructure_retries_left=infrastructure_left,
        )
        self.end_as(followed, verdict, retry=retry, columns=merge_columns(reports))

    def end_as(
        self,
        followed: Followed,
        verdict: Verdict,
        *,
        retry: bool = False,
        columns: dict[str, object] | None = None,
    ) -> None:
        """End the attempt with a verdict that is known already."""
        if self._finisher is None:
            return
        attempt = followed.attempt
        ending = AttemptEnd(
            attempt.attempt_id, verdict.status, verdict.failure_kind, verdict.message, retry, columns or {}
        )
        spool_dir = followed.paths.spool_dir
        event = Ended(attempt.uid, verdict, retry)
        self._alive.discard(attempt.attempt_id)
        self._keep_alive()
        self._finisher.finish(
            Finish(ending, spool_dir if spool_dir.is_dir() else None, lambda: self._events.append(event))
        )

    def take(self) -> list[EngineEvent]:
        """Attempts whose end the database knows since the last call."""
        try:
            os.read(self.wake_fd, 4096)
        except OSError:
            pass
        while self._done:
            self._done.popleft()()
        events, self._events = self._events, []
        return events

    def wait(self, wake_fd: int | None, until_s: float) -> bool:
        """Sleep until there is something to ``take``, or until then; True where ``wake_fd`` ended it."""
        fds = [fd for fd in (wake_fd, self.wake_fd) if fd is not None and fd >= 0]
        readable, _, _ = select.select(fds, [], [], max(until_s - time.monotonic(), 0.0))
        return wake_fd in readable

    def post(self, work: Callable[[], None]) -> None:
        """Have ``take`` do something; may be called from any thread."""
        self._done.append(work)
        try:
            os.write(self._write_fd, b"\0")
        except OSError:
            pass

    def _keep_alive(self) -> None:
        if self._finisher is not None:
            self._finisher.keep_alive(self._alive)
