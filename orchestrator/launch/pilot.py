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
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from orchestrator.errors import DatabaseError, OrchError
from orchestrator.launch.devices import inventory
from orchestrator.launch.events import Ended, Notice, SupervisorEvent, event_to_line
from orchestrator.launch.order import RankPlacement
from orchestrator.launch.orders import new_attempt, placed, retries_left, whole_order
from orchestrator.launch.probes import ProbeClock, probe_groups
from orchestrator.launch.setting import RunSetting
from orchestrator.launch.supervisor import Supervisor
from orchestrator.launch.verdict import Stop
from orchestrator.store import Store, open_store
from orchestrator.store.owner import this_owner
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import JobStatus

_LOOK_EVERY_S = 2.0
_PROBE_POLL_S = 0.1
_FIRST_JOB_S = 60.0
"""What a job is expected to take before one has been seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSetting(RunSetting):
    """What a pilot is told by its engine; in a file, since a command line is everybody's to read.

    Attributes:
        engine_job: the scheduler's name of the allocation; None = as Slurm's environment says.
        slots: ranks at once on a CPU; on a GPU host every visible device is one.
    """

    engine: str = "slurm"
    engine_job: str | None = None
    slots: int = 1


def load_setting(path: Path | None, **given: str | None) -> PilotSetting:
    """Read a setting; unknown keys are an error, missing ones take defaults, ``given`` ones go first."""
    document = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
    document.update({name: value for name, value in given.items() if value is not None})
    known = {field.name for field in fields(PilotSetting)}
    if unknown := set(document) - known:
        raise OrchError(f"unknown setting {', '.join(sorted(unknown))}", str(path))
    if missing := {"db_url", "sweep"} - set(document):
        raise OrchError(f"no {' and no '.join(sorted(missing))}", str(path or "the pilot's arguments"))
    return PilotSetting(**{**document, "probe_command": tuple(document.get("probe_command", ()))})


class Pilot:
    """Claims, runs, claims again."""

    def __init__(
        self,
        store: Store,
        setting: PilotSetting,
        until: float,
        tell: Callable[[SupervisorEvent], None],
    ) -> None:
        self._store = store
        self._sweep = store.sweep(setting.sweep)
        self._setting = replace(setting, db_url=store.url)
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
        self._leaving = self._asks_again = False
        self._probes = self._probe_clock([device.uuid for device in host.devices])
        self._supervisor = Supervisor(self._take)
        self._supervisor.open_database(store.url)

    def _probe_clock(self, uuids: list[str]) -> ProbeClock:
        setting, sweep_id = self._setting, self._sweep.sweep_id
        groups: list[tuple[str, ...]] = []
        if setting.probe_every_s is not None and uuids:
            jobs = self._store.runnable(sweep_id, retry_failed=False)
            groups = probe_groups(uuids, {job.cell_values.num_gpus for job in jobs})
        elif setting.probe_every_s is not None and setting.probe_command:
            groups = [("cpu",)]
        say: Callable[[str], None] = lambda text: self._tell(Notice(text))  # noqa: E731
        every_s = setting.probe_every_s if groups else None
        return ProbeClock(self._store, sweep_id, groups, every_s, say, setting.probe_command)

    def run(self) -> int:
        """Until there is nothing left to claim or the allocation ends; attempts run."""
        supervisor = self._supervisor
        supervisor.loop.call_soon(self._look)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _n, _f: supervisor.loop.post(self._told_to_stop))
        supervisor.loop.call_later(
            max(0.0, self._until - time.time() - self._setting.grace_s),
            lambda: self._leave("the allocation ends", Stop.EVICTED),
        )
        try:
            supervisor.loop.run()
        finally:
            self._probes.close()
            supervisor.close()
        return len(self._begun_at)

    def _take(self, event: SupervisorEvent) -> None:
        self._tell(event)
        if not isinstance(event, Ended):
            return
        self._free += self._held.pop(event.attempt_uid)
        self._longest_s = max(self._longest_s, time.monotonic() - self._begun_at[event.attempt_uid])
        status = event.verdict.status
        if status is JobStatus.ok:
            self._failures_in_a_row = 0
        elif status not in (JobStatus.cancelled, JobStatus.skipped) and not event.retry:
            self._failures_in_a_row += 1
        self._supervisor.loop.call_soon(self._claim)

    def _look(self) -> None:
        """Now and then: has somebody cancelled, is there new work?"""
        if self._store.cancel_requested(self._sweep.sweep_id):
            self._leave("cancelled by the user")
            return
        self._claim()
        self._supervisor.loop.call_later(_LOOK_EVERY_S, self._look)

    def _told_to_stop(self) -> None:
        """By orch, which has asked for it in the database; else Slurm takes the allocation away."""
        try:
            by_user = self._store.cancel_requested(self._sweep.sweep_id)
        except DatabaseError:
            by_user = False
        if by_user:
            self._leave("cancelled by the user")
        else:
            self._leave("its pilot was told to stop", Stop.EVICTED)

    def _leave(self, reason: str, why: Stop = Stop.CANCELLED) -> None:
        self._leaving = True
        self._supervisor.leave(reason, why=why)

    def _is_probing(self, *, last: bool = False) -> bool:
        """Let a due link probe have the host to itself; True while nothing may be claimed."""
        try:
            probing = self._probes.turn(idle=not self._held, over=False, last=last)
        except DatabaseError as error:
            self._tell(Notice(f"a link probe could not be kept: {error.render()}"))
            return False
        if probing and not self._asks_again:
            self._asks_again = True
            self._supervisor.loop.call_later(_PROBE_POLL_S, self._ask_again)
        return probing

    def _ask_again(self) -> None:
        self._asks_again = False
        self._claim()

    def _claim(self) -> None:
        if self._leaving or self._is_probing():
            return
        expected_s = self._longest_s or min(_FIRST_JOB_S, self._setting.timeout_s)
        may_claim = (
            time.time() + expected_s + self._setting.grace_s < self._until
            and not 0 < self._setting.consecutive_failures <= self._failures_in_a_row
        )
        while may_claim and self._free:
            claimed = self._store.claim_next(self._sweep.sweep_id, self._new_attempt, self._fits)
            if claimed is None:
                break
            self._start(*claimed)
        if not self._held and not self._is_probing(last=True):
            self._leave("nothing left to claim")

    def _fits(self, job: JobRow) -> bool:
        cell = job.cell_values
        return cell.num_nodes == 1 and cell.num_gpus * cell.contention <= len(self._free)

    def _new_attempt(self, _job: JobRow) -> NewAttempt:
        setting = self._setting
        return new_attempt(
            setting,
            setting.engine,
            self._sweep.uid,
            this_owner(),
            engine_job=setting.engine_job,
            host=socket.gethostname(),
        )

    def _start(self, job: JobRow, attempt: AttemptRow) -> None:
        cell = job.cell_values
        taken = [self._free.pop(0) for _ in range(cell.num_gpus * cell.contention)]
        self._held[attempt.uid] = taken
        self._probes.job_begins()
        self._begun_at[attempt.uid] = time.monotonic()
        left, infrastructure_left = retries_left(self._setting, attempt.number - 1)
        order = replace(
            whole_order(self._setting, job, attempt, self._accelerator),
            retries_left=left,
            infrastructure_retries_left=infrastructure_left,
        )
        self._supervisor.start(placed(order, taken, cell.num_gpus))


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
        setting = load_setting(arguments.setting, db_url=arguments.db, sweep=arguments.sweep)
        setting = replace(setting, engine_job=setting.engine_job or os.environ.get("SLURM_JOB_ID"))
        with open_store(setting.db_url) as store:
            Pilot(store, setting, arguments.until, tell).run()
    except OrchError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
