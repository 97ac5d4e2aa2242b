"""Many short jobs through Slurm: pilots, allocations that take jobs from the database until they end.

Orch starts pilots and watches the database; the pilots claim, run and end attempts themselves.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from orchestrator.engines import slurm_commands as slurm
from orchestrator.engines.admission import need_of, refusal
from orchestrator.engines.base import Capacity, Ended, EngineEvent, Lost, Notice, Started
from orchestrator.engines.slurm_capacity import partition_capacity, wants_gpus
from orchestrator.engines.slurm_script import sbatch_options, write_script
from orchestrator.engines.slurm_watch import Pace
from orchestrator.errors import DatabaseError, EngineError
from orchestrator.launch.paths import runs_root
from orchestrator.launch.publish import publish
from orchestrator.launch.setting import RunSetting
from orchestrator.spec.options import SlurmOptions
from orchestrator.store.opening import open_store
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import JobStatus, Verdict
from orchestrator.store.store import Store

_MOST_FRUITLESS = 3
"""Pilots in a row that ended without having begun an attempt."""
_LEAVE_WITHIN_S = 20.0
_LAST_PROBE_S = 60.0
_UNWANTED_S = 5.0
"""Without a call of ``want`` for so long, the sweep is to end: pilots take nothing more."""


class SlurmPilots:
    """Keeps pilots in Slurm's queue as long as there is work. See ``base.Engine``."""

    name = "slurm"
    claims_itself = True

    def __init__(self, setting: RunSetting, options: SlurmOptions) -> None:
        slurm.require_commands()
        nodes = slurm.nodes(options.partition)
        self._gpus = wants_gpus(options, max((node.gpus for node in nodes), default=0))
        whole = partition_capacity(nodes, options, self._gpus)
        self._ranks = min(options.gpus_per_node or whole.ranks_per_node or 1, whole.ranks_per_node or 1)
        label = f"pilots of {self._ranks}, {whole.label}"
        self._capacity = replace(whole, nodes=1, ranks_per_node=self._ranks, label=label)
        self._setting, self._options = setting, options
        self._store: Store | None = None
        self._sweep_id, self._sweep_uid = 0, ""
        self._wake_fd: int | None = None
        self._pilots: dict[str, bool] = {}  # Slurm id -> whether it has begun an attempt
        self._running: dict[str, AttemptRow] = {}
        self._last_id = 0
        self._wanted = 0
        self._wanted_at_s = time.monotonic()
        self._fruitless = self._started = 0
        self._stopping = self._is_away = False
        self._rows = Pace(0.1, 1.0)
        self._queue = Pace(min(0.5, options.poll_s), options.poll_s)

    def capacity(self) -> Capacity:
        """What one pilot has."""
        return self._capacity

    def check(self, job: JobRow) -> str | None:
        """Why no pilot can run the job; several nodes need a job of their own (``mode: job``)."""
        return refusal(need_of(job), self._capacity)

    def open(self, sweep_uid: str, wake_fd: int) -> None:
        """Look at what is there already."""
        self._sweep_uid, self._wake_fd = sweep_uid, wake_fd
        self._store = open_store(self._setting.db_url, patience_s=2.0)
        self._sweep_id = self._store.sweep(self._setting.sweep).sweep_id
        before = self._store.attempts_after(self._sweep_id, 0)
        self._last_id = before[-1].attempt_id if before else 0
        self._pilots = {job.job_id: True for job in slurm.mine() if self._is_mine(job)}

    def reserve(self, job: JobRow) -> NewAttempt | None:
        """Never: pilots claim."""
        del job
        return None

    def release(self, attempt_uid: str) -> None:
        """Nothing is reserved."""

    def submit(self, job: JobRow, attempt: AttemptRow, tries: int) -> None:
        """Never called: pilots claim."""

    def want(self, runnable: int) -> None:
        """So many jobs wait: have enough pilots for them. Holds for one ``poll``."""
        self._wanted, self._wanted_at_s = runnable, time.monotonic()

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        """What the database tells of the attempts, and Slurm of the pilots."""
        deadline_s = time.monotonic() + max(timeout_s, 0.0)
        said: list[EngineEvent] = []
        while True:
            if time.monotonic() - self._wanted_at_s > _UNWANTED_S:
                self._stop()
            if self._rows.is_due():
                said += self._look_at_attempts()
            if self._queue.is_due():
                said += self._look_at_pilots()
            if not said:  # else the loop is to say first how many jobs are still wanted
                said += self._start_pilots()
            now_s = time.monotonic()
            if said or now_s >= deadline_s:
                self._wanted = 0
                return said
            wait_s = min(deadline_s, self._rows.due_s, self._queue.due_s)
            fds = [self._wake_fd] if self._wake_fd is not None else []
            if select.select(fds, [], [], max(wait_s - now_s, 0.0))[0]:
                self._wanted = 0
                return said

    def cancel(self, attempt_uid: str) -> None:
        """Pilots look for the request in the database; they end all that they run."""
        if attempt_uid in self._running:
            self._stop()

    def adopt(self, attempts: Sequence[AttemptRow]) -> Sequence[AttemptRow]:
        """Take up the attempts of pilots that live."""
        living = {attempt.uid: attempt for attempt in attempts if attempt.engine_job in self._pilots}
        self._running.update(living)
        return [attempt for attempt in attempts if attempt.uid not in living]

    def close(self, *, kill: bool) -> None:
        """Have Slurm end the pilots; what they still run is then cancelled and not tried again."""
        try:
            if self._store is not None and self._pilots and self._store.running_attempts(self._sweep_id):
                self._stop()
        except DatabaseError:
            pass
        try:
            if not kill and not self._stopping and self._probes:
                # They measure the link once more when nothing is left to claim, and leave.
                self._wait_for_ends(_LAST_PROBE_S, waiting_ones=False)
            slurm.cancel(list(self._pilots), kill=kill)
            self._wait_for_ends(self._setting.grace_s + _LEAVE_WITHIN_S)
        except EngineError:
            pass
        self._pilots.clear()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    @property
    def _probes(self) -> bool:
        return self._setting.probe_every_s is not None and (self._gpus or bool(self._setting.probe_command))

    def _wait_for_ends(self, within_s: float, *, waiting_ones: bool = True) -> None:
        """They end their attempts in the database: until then the counts are not the last ones."""
        deadline_s = time.monotonic() + within_s
        pause_s = 0.1
        while self._pilots and time.monotonic() < deadline_s:
            ours = [job.state for job in slurm.mine() if job.job_id in self._pilots]
            if all(one.is_final or (one is slurm.SlurmState.WAITING and not waiting_ones) for one in ours):
                return
            # A signal ends the wait for the last probe.
            fds = [self._wake_fd] if self._wake_fd is not None and not waiting_ones else []
            if select.select(fds, [], [], pause_s)[0]:
                return
            pause_s = min(pause_s * 1.5, 1.0)

    def _is_mine(self, job: slurm.SlurmJob) -> bool:
        return job.name == self._pilot_name and not job.state.is_final

    @property
    def _pilot_name(self) -> str:
        return f"orch-pilot-{self._sweep_uid[:12]}"

    def _opened(self) -> Store:
        if self._store is None:
            raise EngineError("the slurm engine is not open")
        return self._store

    def _stop(self) -> None:
        if not self._stopping and self._pilots:
            self._opened().request_cancel(self._setting.sweep)
            self._stopping = True

    # -- attempts ----------------------------------------------------------------------------------

    def _look_at_attempts(self) -> list[EngineEvent]:
        store, said = self._opened(), list[EngineEvent]()
        try:
            for attempt in store.attempts_after(self._sweep_id, self._last_id):
                self._last_id = attempt.attempt_id
                self._running[attempt.uid] = attempt
                self._fruitless = 0
                if attempt.engine_job in self._pilots:
                    self._pilots[attempt.engine_job] = True
                said.append(Started(attempt.uid, where=attempt.host or "", job_id=attempt.job_id))
            if self._running:
                still = {attempt.uid for attempt in store.running_attempts(self._sweep_id)}
                for uid in [uid for uid in self._running if uid not in still]:
                    said.append(self._ended(store, self._running.pop(uid)))
        except DatabaseError as error:
            if not self._is_away:
                said.append(Notice(f"{error.render()}; pilots run on"))
            self._is_away = True
        else:
            self._is_away = False
        self._rows.looked(changed=bool(said))
        return said

    def _ended(self, store: Store, before: AttemptRow) -> Ended:
        after = store.attempt(before.attempt_id) or before
        again = after.status not in (JobStatus.ok, JobStatus.cancelled)
        retry = again and store.find_job(str(before.job_id)).status is JobStatus.pending
        verdict = Verdict(after.status, after.failure_kind, after.message)
        return Ended(before.uid, verdict, retry, before.job_id)

    # -- pilots ------------------------------------------------------------------------------------

    def _look_at_pilots(self) -> list[EngineEvent]:
        try:
            known = {job.job_id: job for job in slurm.mine()}
        except slurm.SlurmUnreachable:
            self._queue.looked(changed=False)
            return []
        gone = [one for one in self._pilots if one not in known or known[one].state.is_final]
        said = self._look_at_attempts() if gone else []
        for slurm_id in gone:
            if not self._pilots.pop(slurm_id) and self._wanted > len(self._running):
                self._fruitless += 1
            word = known[slurm_id].raw_state if slurm_id in known else "nothing"
            for uid in [uid for uid, one in self._running.items() if one.engine_job == slurm_id]:
                del self._running[uid]
                said.append(Lost(uid, f"its pilot {slurm_id} is gone (Slurm says {word})"))
        self._queue.looked(changed=bool(gone))
        return said

    def _start_pilots(self) -> list[EngineEvent]:
        if self._stopping:
            return []
        waiting = self._wanted - len(self._running)
        while len(self._pilots) < min(self._options.max_pilots, waiting):
            if self._fruitless >= _MOST_FRUITLESS:
                raise EngineError(
                    f"{self._fruitless} pilots in a row ended without a job",
                    "engine slurm",
                    f"see their logs in {self._folder}",
                )
            try:
                self._pilots[self._submit_pilot()] = False
            except (slurm.SlurmUnreachable, slurm.SlurmFull) as error:
                return [Notice(f"no pilot can be submitted now ({error.what})")] if self._started == 0 else []
            self._queue.speed_up()
        return []

    @property
    def _folder(self) -> str:
        return str(runs_root(self._setting.db_url) / self._sweep_uid[:12])

    def _submit_pilot(self) -> str:
        setting = self._setting
        folder = (
            runs_root(setting.db_url) / self._sweep_uid[:12] / f"pilot-{int(time.time())}-{self._started}"
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._started += 1
        told = {**asdict(setting), "slots": self._ranks}
        publish(folder / "setting.json", told, mode=0o600)
        arguments = ["--setting", str(folder / "setting.json")]
        write_script(folder / "batch.sh", "orchestrator.launch.pilot", arguments, nodes=1)
        options = sbatch_options(
            self._options,
            name=self._pilot_name,
            comment=f"orch pilot of {setting.sweep}",
            folder=folder,
            nodes=1,
            ranks_per_node=self._ranks,
            gpus=self._gpus,
        )
        # Its run directories lie where orch's would.
        options[options.index(f"--chdir={folder}")] = f"--chdir={runs_root(setting.db_url).parent}"
        return slurm.submit(str(folder / "batch.sh"), options)
