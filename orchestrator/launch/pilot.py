"""A pilot: claims jobs of one sweep from the database and runs them until its allocation ends.

``python -m orchestrator.launch.pilot --setting FILE [--until EPOCH]``, inside an allocation of one node.
Jobs run as on the local engine: supervised, by the fork server, timed one at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.launch.devices import inventory
from orchestrator.launch.events import Ended, SupervisorEvent, event_to_line
from orchestrator.launch.order import Launcher, LaunchOrder, RankPlacement
from orchestrator.launch.paths import attempt_run_dir
from orchestrator.launch.supervisor import Supervisor
from orchestrator.store import Store, open_store
from orchestrator.store.owner import this_owner
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt

_LOOK_EVERY_S = 2.0
_FIRST_JOB_S = 60.0
"""What a job is expected to take before one has been seen."""


@dataclass(frozen=True, slots=True)
class PilotSetting:
    """What a pilot is told by its engine.

    Attributes:
        db_url, sweep: what to claim from; in a file, since a command line is everybody's to read.
        slots: ranks at once on a CPU; on a GPU host every visible device is one.
        retries: attempts more that a job gets after a failure that may pass.
    """

    db_url: str = ""
    sweep: str = ""
    engine: str = "slurm"
    engine_job: str | None = None
    launcher: Launcher = "fork"
    worker: str = "worker.rank:main"
    slots: int = 1
    timeout_s: float = 1800.0
    grace_s: float = 10.0
    start_timeout_s: float = 600.0
    hang_s: float | None = None
    retries: int = 1
    consecutive_failures: int = 10
    timed_section: bool = True


def load_setting(path: Path | None) -> PilotSetting:
    """Read a setting; unknown keys are an error, missing ones take their defaults."""
    if path is None:
        return PilotSetting()
    document = json.loads(path.read_text(encoding="utf-8"))
    unknown = set(document) - {field.name for field in fields(PilotSetting)}
    if unknown:
        raise OrchError(f"unknown setting {', '.join(sorted(unknown))}", str(path))
    return PilotSetting(**document)


class Pilot:
    """Claims, runs, claims again."""

    def __init__(
        self,
        store: Store,
        sweep: str,
        setting: PilotSetting,
        until: float,
        tell: Callable[[SupervisorEvent], None],
    ) -> None:
        self._store = store
        self._sweep = store.sweep(sweep)
        self._setting = setting
        self._until = until
        self._tell = tell
        host = inventory()
        self._accelerator = host.accelerator
        placed = [RankPlacement(0, 0, d.index, d.uuid, d.numa_node) for d in host.devices]
        self._free = placed or [RankPlacement(0, 0) for _ in range(setting.slots)]
        self._total = len(self._free)
        self._held: dict[str, list[RankPlacement]] = {}
        self._begun_at: dict[str, float] = {}
        self._longest_s = 0.0
        self._failures_in_a_row = 0
        self._leaving = False
        self._supervisor = Supervisor(self._take)
        self._supervisor.open_database(store.url)

    def run(self) -> int:
        """Until there is nothing left to claim or the allocation ends; attempts run."""
        supervisor = self._supervisor
        supervisor.loop.call_soon(self._look)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(
                number, lambda _n, _f: supervisor.loop.post(lambda: self._leave("the pilot was stopped"))
            )
        supervisor.loop.call_later(
            max(0.0, self._until - time.time() - self._setting.grace_s),
            lambda: self._leave("the allocation ends"),
        )
        try:
            supervisor.loop.run()
        finally:
            supervisor.close()
        return len(self._begun_at)

    def _take(self, event: SupervisorEvent) -> None:
        self._tell(event)
        if not isinstance(event, Ended):
            return
        self._free += self._held.pop(event.attempt_uid)
        self._longest_s = max(self._longest_s, time.monotonic() - self._begun_at[event.attempt_uid])
        ok = event.verdict.status == "ok"
        self._failures_in_a_row = 0 if ok else self._failures_in_a_row + 1
        self._supervisor.loop.call_soon(self._claim)

    def _look(self) -> None:
        """Now and then: has somebody cancelled, is there new work?"""
        if self._store.cancel_requested(self._sweep.sweep_id):
            self._leave("cancelled by the user")
            return
        self._claim()
        self._supervisor.loop.call_later(_LOOK_EVERY_S, self._look)

    def _leave(self, reason: str) -> None:
        self._leaving = True
        self._supervisor.leave(reason)

    def _claim(self) -> None:
        if self._leaving:
            return
        expected_s = self._longest_s or min(_FIRST_JOB_S, self._setting.timeout_s)
        may_claim = (
            time.time() + expected_s + self._setting.grace_s < self._until
            and self._failures_in_a_row < self._setting.consecutive_failures
        )
        while may_claim and self._free:
            claimed = self._store.claim_next(self._sweep.sweep_id, self._new_attempt, self._fits)
            if claimed is None:
                break
            self._start(*claimed)
        if not self._held:
            self._leave("nothing left to claim")

    def _fits(self, job: JobRow) -> bool:
        values = job.cell_values.values
        if (values.get("num_nodes") or 1) != 1:
            return False
        return self._ranks(job) * self._copies(job) <= len(self._free)

    @staticmethod
    def _ranks(job: JobRow) -> int:
        return int(job.cell_values.values.get("num_gpus") or 1)

    @staticmethod
    def _copies(job: JobRow) -> int:
        return int(job.cell_values.values.get("contention") or 1)

    def _new_attempt(self, _job: JobRow) -> NewAttempt:
        uid = uuid.uuid4().hex
        setting = self._setting
        return NewAttempt(
            uid=uid,
            engine=setting.engine,
            engine_job=setting.engine_job,
            launcher=setting.launcher,
            run_dir=str(attempt_run_dir(self._store.url, self._sweep.uid, uid)),
            owner=this_owner(),
            host=socket.gethostname(),
        )

    def _start(self, job: JobRow, attempt: AttemptRow) -> None:
        setting, ranks, copies = self._setting, self._ranks(job), self._copies(job)
        taken = [self._free.pop(0) for _ in range(ranks * copies)]
        self._held[attempt.uid] = taken
        self._begun_at[attempt.uid] = time.monotonic()
        groups = [
            tuple(
                RankPlacement(rank, rank, place.device_index, place.device_uuid, place.numa_node)
                for rank, place in enumerate(taken[start : start + ranks])
            )
            for start in range(0, len(taken), ranks)
        ]
        left = max(setting.retries - (attempt.number - 1), 0)
        self._supervisor.start(
            LaunchOrder(
                attempt_uid=attempt.uid,
                attempt_id=attempt.attempt_id,
                job_id=job.job_id,
                sweep=self._sweep.name,
                parameters=job.cell_values.values,
                ds=job.cell_values.ds,
                env=job.cell_values.env,
                run_dir=attempt.run_dir,
                ranks=groups[0],
                neighbours=tuple(groups[1:]),
                world_size=ranks,
                accelerator=self._accelerator,
                db_url=self._store.url,
                launcher=setting.launcher,
                worker=setting.worker,
                timed_section=setting.timed_section,
                timeout_s=setting.timeout_s,
                grace_s=setting.grace_s,
                start_timeout_s=setting.start_timeout_s,
                hang_s=setting.hang_s,
                retries_left=left,
                infrastructure_retries_left=max(left, 3 - (attempt.number - 1), 0),
            )
        )


def _allocation_end() -> float:
    """When Slurm will take the allocation away; a year from now where it does not say."""
    return float(os.environ.get("SLURM_JOB_END_TIME") or time.time() + 365 * 86400)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.launch.pilot")
    parser.add_argument("--db", help="instead of the setting's")
    parser.add_argument("--sweep", help="instead of the setting's")
    parser.add_argument("--until", type=float, default=_allocation_end(), help="seconds since 1970")
    parser.add_argument("--setting", type=Path)
    arguments = parser.parse_args()

    def tell(event: SupervisorEvent) -> None:
        sys.stdout.buffer.write(event_to_line(event))
        sys.stdout.buffer.flush()

    try:
        setting = load_setting(arguments.setting)
        setting = replace(setting, engine_job=setting.engine_job or os.environ.get("SLURM_JOB_ID"))
        with open_store(arguments.db or setting.db_url) as store:
            Pilot(store, arguments.sweep or setting.sweep, setting, arguments.until, tell).run()
    except OrchError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
