"""Jobs through Slurm: an allocation for each attempt, followed by one ``squeue`` for all of them.

Slurm schedules; the node runner in the allocation runs the ranks and leaves a report in the attempt's run
directory, which must lie in a folder that all nodes see. An orch that is gone leaves its jobs alone, and
the next one finds them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from orchestrator.engines import slurm_commands as slurm
from orchestrator.engines.admission import need_of, refusal
from orchestrator.engines.base import Capacity, EngineEvent, Notice, Progress, Started
from orchestrator.engines.remote import Recorder, Word
from orchestrator.engines.slurm_capacity import partition_capacity, wants_gpus
from orchestrator.engines.slurm_jobs import Job, ended_from_outside, found_job, new_job, write_files
from orchestrator.engines.slurm_watch import EventTail, Pace
from orchestrator.engines.slurm_words import is_requeued, log_tells_of_memory, out_of_memory, word_of
from orchestrator.errors import EngineError
from orchestrator.launch.node import read_reports, report_path
from orchestrator.launch.orders import new_attempt
from orchestrator.launch.setting import RunSetting
from orchestrator.spec.options import SlurmOptions
from orchestrator.store.owner import this_owner
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import FailureKind, JobStatus, Verdict

_LATE_FILES_S = 3.0
"""A shared file system may show a node's report so long after Slurm has said that the job is over."""
_LOOKS_WITHOUT = 2
"""Looks at the queue that must miss a job before Slurm counts as having forgotten it."""
_LEAVE_WITHIN_S = 20.0


class SlurmEngine:
    """Runs attempts as Slurm jobs. See ``base.Engine``."""

    name = "slurm"
    claims_itself = False

    def __init__(self, setting: RunSetting, options: SlurmOptions) -> None:
        slurm.require_commands()
        self._setting = setting
        self._options = options
        nodes = slurm.nodes(options.partition)
        self._gpus = wants_gpus(options, max((node.gpus for node in nodes), default=0))
        self._capacity = partition_capacity(nodes, options, self._gpus)
        self._recorder = Recorder(setting)
        self._jobs: dict[str, Job] = {}
        self._reserved: set[str] = set()
        self._to_cancel: list[str] = []
        self._files = Pace(0.05, 0.5)
        self._queue = Pace(min(0.5, options.poll_s), options.poll_s)
        self._owner = this_owner()
        self._wake_fd: int | None = None
        self._sweep_uid = ""
        self._is_away = False

    def capacity(self) -> Capacity:
        """What the partition has; Slurm queues what does not fit at once."""
        return self._capacity

    def check(self, job: JobRow) -> str | None:
        """Why the partition can never run the job."""
        return refusal(need_of(job), self._capacity)

    def open(self, sweep_uid: str, wake_fd: int) -> None:
        """Nothing is started: the cluster is there."""
        self._sweep_uid, self._wake_fd = sweep_uid, wake_fd
        self._recorder.open()

    def reserve(self, job: JobRow) -> NewAttempt | None:
        """A place in Slurm's queue, as long as orch has not too many there."""
        del job
        if self._is_away or len(self._jobs) + len(self._reserved) >= self._options.max_queued:
            return None
        draft = new_attempt(self._setting, self.name, self._sweep_uid, self._owner)
        self._reserved.add(draft.uid)
        return draft

    def release(self, attempt_uid: str) -> None:
        """Give the place back."""
        self._reserved.discard(attempt_uid)

    def submit(self, job: JobRow, attempt: AttemptRow, tries: int) -> None:
        """Write the order and the script, and hand them to ``sbatch``."""
        self._reserved.discard(attempt.uid)
        one = new_job(self._setting, self._options, job, attempt, tries, gpus=self._gpus)
        try:
            write_files(one)
        except OSError as error:
            self._refused(one, f"its run directory cannot be written: {error}")
            return
        self._jobs[attempt.uid] = one
        self._recorder.begin(one.followed)
        self._hand_in(one)

    def want(self, runnable: int) -> None:
        """Nothing: here every job has its own allocation."""

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        """What has happened; looks at files often, at Slurm's queue seldom."""
        deadline_s = time.monotonic() + max(timeout_s, 0.0)
        said: list[EngineEvent] = []
        while True:
            said += self._recorder.take()
            self._send_cancels()
            if self._jobs and self._files.is_due():
                said += self._look_at_files()
            if self._jobs and self._queue.is_due():
                said += self._look_at_queue()
            said += self._recorder.take()
            now_s = time.monotonic()
            if said or now_s >= deadline_s:
                return said
            wait_s = min(deadline_s, self._files.due_s, self._queue.due_s) if self._jobs else deadline_s
            if self._recorder.wait(self._wake_fd, wait_s):
                return said

    def cancel(self, attempt_uid: str) -> None:
        """Have Slurm end the job; several are ended by one command."""
        one = self._jobs.get(attempt_uid)
        if one is not None and not one.followed.cancelled:
            one.followed.cancelled = True
            self._to_cancel.append(attempt_uid)

    def adopt(self, attempts: Sequence[AttemptRow]) -> Sequence[AttemptRow]:
        """Take up every attempt that has a Slurm job; what has become of it, the next look tells."""
        ours = [attempt for attempt in attempts if attempt.engine == self.name]
        named = {job.name: job.job_id for job in slurm.mine()} if ours else {}
        strange = [attempt for attempt in attempts if attempt.engine != self.name]
        for attempt in ours:
            slurm_id = attempt.engine_job or named.get(attempt.uid)
            if slurm_id is None:
                strange.append(attempt)
                continue
            one = found_job(attempt, slurm_id)
            self._jobs[attempt.uid] = one
            self._recorder.begin(one.followed)
        return strange

    def close(self, *, kill: bool) -> None:
        """Cancel what is left, and write down what is known."""
        if kill and self._jobs:
            self._to_cancel.clear()
            try:
                self._find_unsure_ones()
                ids = [one.slurm_id for one in self._jobs.values() if one.slurm_id is not None]
                slurm.cancel(ids, kill=True)
                slurm.wait_for_ends(ids, _LEAVE_WITHIN_S)
            except EngineError:
                pass
        for one in [one for one in self._jobs.values() if one.followed.cancelled]:
            self._end(one, Word())
        self._jobs.clear()
        self._recorder.close()

    # -- submission --------------------------------------------------------------------------------

    def _hand_in(self, one: Job) -> None:
        try:
            slurm_id = slurm.submit(str(one.followed.paths.batch_script), one.arguments)
        except slurm.SlurmUnreachable:
            one.unsure = True
            return
        except slurm.SlurmFull:
            return  # the next look at the queue tries again
        except EngineError as error:
            del self._jobs[one.followed.uid]
            self._refused(one, f"Slurm refused the job: {error.what}")
            return
        self._is_in(one, slurm_id)

    def _is_in(self, one: Job, slurm_id: str) -> None:
        one.slurm_id, one.unsure = slurm_id, False
        self._recorder.update(one.followed, engine_job=slurm_id)
        self._queue.speed_up()
        self._files.speed_up()

    def _refused(self, one: Job, message: str) -> None:
        self._recorder.end_as(one.followed, Verdict(JobStatus.failed, FailureKind.unsupported, message))

    def _send_cancels(self) -> None:
        if not self._to_cancel:
            return
        asked = [self._jobs[uid] for uid in self._to_cancel if uid in self._jobs]
        try:
            slurm.cancel([one.slurm_id for one in asked if one.slurm_id is not None])
        except EngineError:
            return  # asked again in the next turn
        self._to_cancel.clear()
        self._queue.speed_up()
        for one in asked:
            if one.slurm_id is None and not one.unsure:
                self._end(one, Word())

    def _find_unsure_ones(self) -> None:
        """Jobs that Slurm may have taken although its answer was lost."""
        unsure = {uid: one for uid, one in self._jobs.items() if one.unsure}
        for job in slurm.mine() if unsure else ():
            if job.name in unsure:
                unsure[job.name].slurm_id = job.job_id

    # -- following ---------------------------------------------------------------------------------

    def _look_at_files(self) -> list[EngineEvent]:
        """Reports and events in the run directories: they come sooner than Slurm's word."""
        since_s = time.monotonic()
        said: list[EngineEvent] = []
        for one in [one for one in self._jobs.values() if one.slurm_id is not None]:
            said += self._news(one)
            nodes = range(one.followed.nodes)
            if all(report_path(one.followed.paths, node).exists() for node in nodes):
                reports = read_reports(one.followed.paths, one.followed.nodes)
                if any(ended_from_outside(report) for report in reports):
                    self._queue.speed_up()  # by whom, Slurm knows
                elif len(reports) == one.followed.nodes:
                    self._end(one, Word())
        # However slow the file system is: nine tenths of the time for everything else.
        self._files.looked(changed=bool(said), at_least_s=9 * (time.monotonic() - since_s))
        return said

    def _news(self, one: Job) -> list[EngineEvent]:
        if one.tail is None:
            one.tail = EventTail(one.followed.paths)
        said: list[EngineEvent] = []
        for event in one.tail.read():
            if isinstance(event, Started):
                said += self._started(one)
            elif isinstance(event, Progress):
                said.append(event)
        return said

    def _started(self, one: Job) -> list[EngineEvent]:
        if one.told_started:
            return []
        one.told_started = True
        self._recorder.update(one.followed, started_at=one.tail.started_at if one.tail else None)
        return [Started(one.followed.uid, where=one.seen.nodes if one.seen else "")]

    def _look_at_queue(self) -> list[EngineEvent]:
        said: list[EngineEvent] = []
        try:
            known = slurm.mine()
        except slurm.SlurmUnreachable as error:
            if not self._is_away:
                said.append(Notice(f"Slurm does not answer ({error.what}); jobs run on, orch keeps asking"))
            self._is_away = True
            self._queue.looked(changed=False)
            return said
        if self._is_away:
            self._is_away = False
            said.append(Notice("Slurm answers again"))
        by_id = {job.job_id: job for job in known}
        by_name = {job.name: job for job in known}
        changed = False
        for one in list(self._jobs.values()):
            if one.slurm_id is None:
                found = by_name.get(one.followed.uid)
                if found is not None:
                    self._is_in(one, found.job_id)
                    if one.followed.cancelled:
                        self._to_cancel.append(one.followed.uid)
                elif one.followed.cancelled:
                    self._end(one, Word())
                else:
                    self._hand_in(one)
                continue
            changed |= self._take_state(one, by_id.get(one.slurm_id))
        self._queue.looked(changed=changed)
        return said

    def _take_state(self, one: Job, job: slurm.SlurmJob | None) -> bool:
        """What Slurm says of one job; True if it is something new."""
        if job is None:
            one.misses += 1
            if one.misses < _LOOKS_WITHOUT:
                return True
            job = slurm.accounted(str(one.slurm_id))
            if job is None:
                self._end(one, Word(JobStatus.lost, f"Slurm job {one.slurm_id} is unknown to Slurm", True))
                return True
        before, one.seen, one.misses = one.seen, job, 0
        if job.state is slurm.SlurmState.WAITING:
            has_run = one.told_started or (before is not None and before.state is slurm.SlurmState.RUNNING)
            if has_run or is_requeued(job):
                # It would run into the old attempt's records: orch begins another attempt instead.
                # Slurm itself would let it wait two minutes before it ran again.
                slurm.cancel([job.job_id])
                self._end(one, Word(JobStatus.lost, f"Slurm has requeued job {job.job_id}", retry=True))
        elif job.state.is_final:
            self._over(one, job)
        if before is None or before.raw_state != job.raw_state:
            if job.nodes and job.state is slurm.SlurmState.RUNNING:
                self._recorder.update(one.followed, host=job.nodes)
            return True
        return False

    def _over(self, one: Job, job: slurm.SlurmJob) -> None:
        word = word_of(job)
        reports = read_reports(one.followed.paths, one.followed.nodes)
        now_s = time.monotonic()
        one.over_since_s = one.over_since_s or now_s
        if word.status is None and log_tells_of_memory(one.followed.paths.slurm_log):
            word = out_of_memory(job.job_id)
        incomplete = word.status is None and len(reports) < one.followed.nodes
        if incomplete and now_s - one.over_since_s < _LATE_FILES_S:
            self._queue.speed_up()
            return
        self._end(one, word)

    def _end(self, one: Job, word: Word) -> None:
        del self._jobs[one.followed.uid]
        reports = read_reports(one.followed.paths, one.followed.nodes)
        self._recorder.end(one.followed, reports, word)
        self._files.speed_up()
