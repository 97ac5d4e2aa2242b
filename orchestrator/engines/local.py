"""Jobs on this host: a slot a rank, one supervisor process that runs what it is given."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.engines.admission import need_of, refusal
from orchestrator.engines.base import (
    Capacity,
    Ended,
    EngineEvent,
    Lost,
    Notice,
    Started,
)
from orchestrator.engines.host import local_capacity, make_slots
from orchestrator.engines.room import Room
from orchestrator.engines.slots import Slot, SlotPool
from orchestrator.engines.told import engine_event
from orchestrator.errors import EngineError
from orchestrator.launch import cleanup, devices, events
from orchestrator.launch.client import SupervisorClient
from orchestrator.launch.hoststate import state_dir
from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.launch.orders import new_attempt, placed, retries_left, whole_order
from orchestrator.launch.paths import runs_root
from orchestrator.launch.processes import signal_process
from orchestrator.launch.setting import RunSetting
from orchestrator.launch.verdict import is_disk_full
from orchestrator.store.owner import process_is_alive
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt

_MOST_DEATHS = 3
"""Of supervisors in a row that died before they said anything."""
_MOST_KILLS = 20
"""The same where SIGKILL ended them all: whoever does that may stop, a fault at its start stays."""
_STILL_WANTED_S = 1.0
"""Nothing is to be begun any more if nobody has asked for a slot for so long: others may have them."""
_LEAVING_S = 20.0
"""Beyond the grace: how long a supervisor may take to leave after its orch has died."""


class LocalEngine:
    """Runs attempts on this host. See ``base.Engine``."""

    name = "local"
    claims_itself = False

    def __init__(
        self,
        setting: RunSetting,
        *,
        gpus: Sequence[str] | None = None,
        slots: int | None = None,
        inventory: devices.Inventory | None = None,
        prestart: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._setting = setting
        self._inventory = inventory or devices.inventory()
        self._slots = make_slots(self._inventory, gpus, slots)
        self._capacity = local_capacity(self._inventory, self._slots)
        self._prestart = tuple(prestart)
        self._host = socket.gethostname()
        self._pool: SlotPool | None = None
        self._client: SupervisorClient | None = None
        self._wake_fd: int | None = None
        self._sweep_uid = ""
        self._held: dict[str, tuple[Slot, ...]] = {}
        self._host_bytes: dict[str, int] = {}
        self._running: set[str] = set()
        self._unrecorded: set[str] = set()
        self._room = Room(runs_root(setting.db_url))
        self._deaths = self._kills = 0
        self._asked_at_s = 0.0

    @property
    def waits_for_others(self) -> bool:
        """The head of the queue waits for a slot that another orch holds."""
        return self._pool is not None and self._pool.waits_for_others and not self._unrecorded

    def capacity(self) -> Capacity:
        """The slots of this host."""
        return self._capacity

    def check(self, job: JobRow) -> str | None:
        """Why the job can never run in these slots."""
        return refusal(need_of(job), self._capacity)

    def open(self, sweep_uid: str, wake_fd: int) -> None:
        """Start the supervisor and, with it, the fork servers that the sweep will need.

        Whatever a dead supervisor has left on this host is ended first: its own orch may never come back.
        """
        cleanup.sweep(runs_root(self._setting.db_url))
        self._sweep_uid, self._wake_fd = sweep_uid, wake_fd
        self._pool = SlotPool(self._slots, state_dir())
        self._client = self._start_supervisor()

    def reserve(self, job: JobRow) -> NewAttempt | None:
        """Lease the job's slots; a wide job holds back the ones that come free.

        None while an attempt waits for the database: what is begun then could not be recorded either. Nor
        while the disk is full that an attempt was lost for.
        """
        pool, client = self._opened()
        if self._unrecorded or not self._room.is_there():
            return None
        self._asked_at_s = time.monotonic()
        need = need_of(job)
        host_bytes = need.host_bytes(self._capacity.accelerator)
        there = self._capacity.host_bytes
        if self._held and there is not None and sum(self._host_bytes.values()) + host_bytes > there:
            return None
        slots = pool.take(need.ranks_per_node)
        if slots is None:
            return None
        measured = slots[: need.num_gpus]
        draft = new_attempt(
            self._setting,
            self.name,
            self._sweep_uid,
            client.owner,
            host=self._host,
            device_uuids=tuple(slot.device_uuid for slot in measured if slot.device_uuid),
        )
        self._held[draft.uid] = slots
        self._host_bytes[draft.uid] = host_bytes
        return draft

    def release(self, attempt_uid: str) -> None:
        """Give the slots back."""
        slots = self._held.pop(attempt_uid, ())
        self._host_bytes.pop(attempt_uid, None)
        if self._pool is not None:
            self._pool.give(slots)

    def submit(self, job: JobRow, attempt: AttemptRow, tries: int) -> None:
        """Send the order to the supervisor. If that is gone, ``poll`` says so."""
        _, client = self._opened()
        self._running.add(attempt.uid)
        try:
            client.start(self._order(job, attempt, tries))
        except EngineError:
            pass  # poll sees the dead supervisor and tells of every attempt it had

    def want(self, runnable: int) -> None:
        """Nothing: this engine has no pilots."""

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        """What the supervisor said; a dead one is replaced and its attempts are told as lost."""
        pool, client = self._opened()
        if time.monotonic() - self._asked_at_s > _STILL_WANTED_S:
            pool.stop_waiting()
        fds = [client.fileno()] + ([self._wake_fd] if self._wake_fd is not None else [])
        readable, _, _ = select.select(fds, [], [], max(timeout_s, 0.0))
        said: list[EngineEvent] = [Notice(text) for text in self._room.take_news()]
        if client.fileno() not in readable:
            return said
        heard = list(client.events())
        for event in heard:
            self._deaths = self._kills = 0
            said.extend(self._translate(event))
        if not client.alive and not heard:
            said.extend(self._replace_supervisor())
        return said

    def cancel(self, attempt_uid: str) -> None:
        """Stop one attempt with the usual grace."""
        if self._client is not None and attempt_uid in self._running:
            try:
                self._client.stop(attempt_uid, "cancelled by the user")
            except EngineError:
                pass

    def adopt(self, attempts: Sequence[AttemptRow]) -> Sequence[AttemptRow]:
        """None can be taken up: their supervisors stop them now that their orch is gone.

        Waits for those supervisors, then ends what they have left; one that hangs is killed.
        """
        deadline_s = time.monotonic() + self._setting.grace_s + _LEAVING_S
        here = [attempt for attempt in attempts if (attempt.owner or "").startswith(f"{self._host}:")]
        owners = {attempt.owner or "" for attempt in here}
        while any(map(process_is_alive, owners)) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        for owner in filter(process_is_alive, owners):
            # Stopped, or stuck in the kernel: it would keep its slots for ever.
            signal_process(int(owner.split(":")[1]), signal.SIGKILL)
        run_dirs = [Path(attempt.run_dir) for attempt in here]
        cleanup.sweep(runs_root(self._setting.db_url), run_dirs)
        return attempts

    def close(self, *, kill: bool) -> None:
        """End the supervisor; what runs is killed at once, or stopped with the grace."""
        client, self._client = self._client, None
        if client is not None:
            if kill and client.alive:
                try:
                    client.kill_all()
                except EngineError:
                    pass
            client.close(timeout_s=self._setting.grace_s + _LEAVING_S)
        if self._pool is not None:
            self._pool.stop_waiting()
            for attempt_uid in list(self._held):
                self.release(attempt_uid)
            self._pool.close()
            self._pool = None
        self._running.clear()
        self._unrecorded.clear()

    def _opened(self) -> tuple[SlotPool, SupervisorClient]:
        if self._pool is None or self._client is None:
            raise EngineError("the local engine is not open")
        return self._pool, self._client

    def _start_supervisor(self) -> SupervisorClient:
        assert self._pool is not None
        root = runs_root(self._setting.db_url)
        root.mkdir(parents=True, exist_ok=True)
        return SupervisorClient(
            db_url=self._setting.db_url,
            log_path=root / "supervisor.log",
            prestart=self._prestart if self._setting.launcher == "fork" else (),
            worker=self._setting.worker,
            accelerator=self._capacity.accelerator or "cpu",
            keep_fds=self._pool.lease_fds(),
        )

    def _replace_supervisor(self) -> list[EngineEvent]:
        assert self._client is not None
        self._client.close(timeout_s=0.0)
        self._deaths += 1
        self._kills += self._client.was_killed
        if self._deaths - self._kills > _MOST_DEATHS or self._kills > _MOST_KILLS:
            log = runs_root(self._setting.db_url) / "supervisor.log"
            end = "is killed" if self._client.was_killed else "dies"
            raise EngineError(f"the supervisor of this host {end} as soon as it is started", str(log))
        lost: list[EngineEvent] = [Notice("the supervisor of this host died; a new one is started")]
        for attempt_uid in sorted(self._running):
            lost.append(Lost(attempt_uid, "its supervisor died"))
            self.release(attempt_uid)
        self._running.clear()
        self._unrecorded.clear()
        cleanup.sweep(runs_root(self._setting.db_url))
        self._client = self._start_supervisor()
        return lost

    def _translate(self, event: events.SupervisorEvent) -> list[EngineEvent]:
        match event:
            case events.Started(uid, mode, _, note):
                started = Started(uid, mode, self._where(uid))
                return [started, Notice(note)] if note else [started]
            case events.Ended(uid, verdict, retry):
                self._running.discard(uid)
                self._unrecorded.discard(uid)
                self.release(uid)
                if retry and is_disk_full(verdict.message or ""):
                    self._room.ran_out()
                return [Ended(uid, verdict, retry)]
            case events.Waiting(uid, "database"):
                # Its ranks are gone, and the database may stay away for hours: another orch may work.
                self._give_to_others(uid)
        told = engine_event(event)
        return [] if told is None else [told]

    def _give_to_others(self, attempt_uid: str) -> None:
        pool, _ = self._opened()
        self._unrecorded.add(attempt_uid)
        self.release(attempt_uid)
        pool.stop_waiting()

    def _where(self, attempt_uid: str) -> str:
        slots = self._held.get(attempt_uid, ())
        indices = [str(slot.device_index) for slot in slots if slot.device_index is not None]
        return f"GPU {','.join(indices)}" if indices else ""

    def _order(self, job: JobRow, attempt: AttemptRow, tries: int) -> LaunchOrder:
        left, infrastructure_left = retries_left(self._setting, tries)
        order = replace(
            whole_order(self._setting, job, attempt, self._capacity.accelerator or "cpu"),
            retries_left=left,
            infrastructure_retries_left=infrastructure_left,
        )
        places = [_place(slot) for slot in self._held[attempt.uid]]
        return placed(order, places, job.cell_values.num_gpus)


def _place(slot: Slot) -> RankPlacement:
    return RankPlacement(0, 0, slot.device_index, slot.device_uuid, slot.numa_node)
