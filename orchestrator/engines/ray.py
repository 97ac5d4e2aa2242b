"""Jobs through Ray: a placement group for each attempt, one task a node that starts that node's ranks.

Ray finds the room, restarts nothing (``max_retries=0``): whether a job is tried again is the database's
decision. Everything belongs to this driver, so nothing survives it. The only module that imports ray.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from orchestrator.engines.admission import need_of, refusal
from orchestrator.engines.base import Capacity, EngineEvent, EngineSetting, Notice, Progress, Started
from orchestrator.engines.remote import Followed, Recorder, Word, node_orders
from orchestrator.errors import EngineError
from orchestrator.launch import events
from orchestrator.launch.order import order_from_json
from orchestrator.launch.paths import attempt_run_dir
from orchestrator.launch.remote_node import NodeFiles, run_here, write_files
from orchestrator.launch.report import NodeReport
from orchestrator.spec.options import RayOptions
from orchestrator.store.owner import this_owner
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import JobStatus

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

try:
    import ray
    from ray import exceptions as ray_errors
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import (
        NodeAffinitySchedulingStrategy,
        PlacementGroupSchedulingStrategy,
    )
except ImportError as error:
    raise EngineError("Ray is not installed", "engine ray", "pip install 'offload-orch[ray]'") from error

_STOP_NODES_S = 30.0
_ANSWER_WITHIN_S = 10.0
_START = "start it with ray start --head, or leave the address out for a cluster of this host alone"


class Mailbox:
    """What nodes tell orch, what orch tells nodes, and the boards of attempts; an actor beside the driver."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._stopped: set[str] = set()
        self._notes: dict[str, Mapping[str, object]] = {}
        self._news = asyncio.Event()

    async def tell(self, uid: str, lines: list[bytes]) -> bool:
        """Take events in; whether the attempt is to stop."""
        if lines:
            self._lines += lines
            self._news.set()
        return uid in self._stopped

    async def take(self) -> list[bytes]:
        """The events since the last call, as soon as there are some."""
        await self._news.wait()
        self._news.clear()
        lines, self._lines = self._lines, []
        return lines

    async def stop(self, uid: str) -> None:
        """The attempt is to stop."""
        self._stopped.add(uid)

    async def put(self, key: str, note: Mapping[str, object]) -> None:
        """Pin a note to a board."""
        self._notes[key] = note

    async def get(self, key: str) -> Mapping[str, object] | None:
        """A note of a board."""
        return self._notes.get(key)


class _ActorBoard:
    """A board of one attempt, kept by the mailbox."""

    def __init__(self, mailbox: Any, uid: str) -> None:
        self._mailbox, self._uid = mailbox, uid

    def put(self, key: str, note: Mapping[str, object]) -> None:
        """See ``meeting.Board``."""
        ray.get(self._mailbox.put.remote(f"{self._uid}/{key}", note))

    def get(self, key: str) -> Mapping[str, Any] | None:
        """See ``meeting.Board``."""
        found: Mapping[str, Any] | None = ray.get(self._mailbox.get.remote(f"{self._uid}/{key}"))
        return found


def _node(order_json: str, token: str, mailbox: Any) -> tuple[NodeReport, NodeFiles]:
    """One node of one attempt; runs in a Ray worker."""
    order = order_from_json(json.loads(order_json))
    uid = order.attempt_uid

    def talk(said: Sequence[events.SupervisorEvent]) -> bool:
        stopped: bool = ray.get(mailbox.tell.remote(uid, [events.event_to_line(event) for event in said]))
        return stopped

    board = _ActorBoard(mailbox, uid) if order.num_nodes > 1 else None
    return run_here(order, token, talk, board, ray.util.get_node_ip_address())


@dataclass(slots=True)
class _Job:
    """An attempt as a placement group and its tasks."""

    followed: Followed
    group: Any
    ranks: int
    per_node: int
    refs: list[Any] = field(default_factory=list)
    reports: dict[int, NodeReport] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    word: Word = field(default_factory=Word)
    heard: bool = False
    since_s: float = field(default_factory=time.monotonic)
    warned: bool = False


class RayEngine:
    """Runs attempts on a Ray cluster. See ``base.Engine``."""

    name = "ray"
    claims_itself = False

    def __init__(self, setting: EngineSetting, options: RayOptions) -> None:
        self._setting = setting
        self._options = options
        self._is_ours = False
        self._connect()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._kind = "GPU" if any(node.get("GPU") for node in nodes) and _wants_gpus() else "CPU"
        self._capacity = _capacity(nodes, self._kind)
        self.hosts = 1 if self._is_ours else 2
        self._recorder = Recorder(setting)
        self._jobs: dict[str, _Job] = {}
        self._reserved: dict[str, int] = {}
        self._said: list[EngineEvent] = []
        self._owner = this_owner()
        self._wake_fd: int | None = None
        self._sweep_uid = ""
        self._mailbox: Any = None
        self._run_node: Any = None

    def capacity(self) -> Capacity:
        """What the cluster had when orch connected."""
        return self._capacity

    def check(self, job: JobRow) -> str | None:
        """Why the cluster can never run the job."""
        return refusal(need_of(job), self._capacity)

    def open(self, sweep_uid: str, wake_fd: int) -> None:
        """Start the mailbox."""
        self._sweep_uid, self._wake_fd = sweep_uid, wake_fd
        self._recorder.open()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        # max_calls=0: a worker that had a GPU is used again, with its fork server.
        self._run_node = ray.remote(max_retries=0, max_calls=0, num_cpus=0)(_node)
        self._listen()

    def reserve(self, job: JobRow) -> NewAttempt | None:
        """Room by the cluster's size; at most one job waits for what is not free yet."""
        used = sum(self._reserved.values()) + sum(one.ranks for one in self._jobs.values())
        slots = self._capacity.slots or 1
        need = need_of(job)
        if used > slots or (used == slots and any(not one.heard for one in self._jobs.values())):
            return None
        uid = uuid.uuid4().hex
        self._reserved[uid] = need.ranks_per_node * need.nodes
        return NewAttempt(
            uid=uid,
            engine=self.name,
            launcher=self._setting.launcher,
            run_dir=str(attempt_run_dir(self._setting.db_url, self._sweep_uid, uid)),
            owner=self._owner,
        )

    def release(self, attempt_uid: str) -> None:
        """Give the room back."""
        self._reserved.pop(attempt_uid, None)

    def submit(self, job: JobRow, attempt: AttemptRow, tries: int) -> None:
        """Ask for the placement group; the tasks wait for it in Ray."""
        self._reserved.pop(attempt.uid, None)
        need = need_of(job)
        orders = node_orders(self._setting, job, attempt, "cuda" if self._kind == "GPU" else "cpu")
        followed = Followed(attempt, orders, tries)
        # Whoever sees this file sees orch's folder.
        token = f".seen-{attempt.uid[:8]}"
        followed.paths.run_dir.mkdir(parents=True, exist_ok=True)
        (followed.paths.run_dir / token).touch()
        bundles = [{self._kind: float(need.ranks_per_node)} for _ in orders]
        strategy = self._options.strategy if need.nodes > 1 else "STRICT_PACK"
        group = placement_group(bundles, strategy=strategy, name=f"orch-{attempt.uid}")
        one = _Job(followed, group, need.ranks_per_node * need.nodes, need.ranks_per_node)
        self._jobs[attempt.uid] = one
        self._recorder.begin(followed)
        self._recorder.update(followed, engine_job=group.id.hex())
        for order in orders:
            place = PlacementGroupSchedulingStrategy(group, order.node_rank)
            gpus = need.ranks_per_node if self._kind == "GPU" else 0
            ref = self._run_node.options(
                num_gpus=gpus, scheduling_strategy=place, name=f"orch {self._setting.sweep} {job.label}"
            ).remote(json.dumps(order.to_json()), token, self._mailbox)
            one.refs.append(ref)
            self._when_done(attempt.uid, order.node_rank, ref)

    def want(self, runnable: int) -> None:
        """Nothing: Ray has no pilots; its workers live on between jobs."""

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        """What nodes have told and what has ended; waits for the first of it."""
        deadline_s = time.monotonic() + max(timeout_s, 0.0)
        while True:
            self._said += self._recorder.take()
            self._look_for_impossible_ones()
            if self._said or time.monotonic() >= deadline_s:
                said, self._said = self._said, []
                return said
            fds = [fd for fd in (self._wake_fd, self._recorder.wake_fd) if fd is not None and fd >= 0]
            readable, _, _ = select.select(fds, [], [], max(deadline_s - time.monotonic(), 0.0))
            if self._wake_fd in readable:
                return []

    def cancel(self, attempt_uid: str) -> None:
        """Stop one attempt: its nodes ask the mailbox, tasks that have not begun are taken back."""
        one = self._jobs.get(attempt_uid)
        if one is not None and not one.followed.cancelled:
            one.followed.cancelled = True
            self._stop(one)

    def adopt(self, attempts: Sequence[AttemptRow]) -> Sequence[AttemptRow]:
        """None: Ray ends a driver's tasks with it."""
        return attempts

    def close(self, *, kill: bool) -> None:
        """Take the placement groups back, and with them whatever runs; leave the cluster."""
        if not ray.is_initialized():
            return
        if not kill:
            deadline_s = time.monotonic() + _STOP_NODES_S
            while self._jobs and time.monotonic() < deadline_s:
                self.poll(0.1)
        for one in self._jobs.values():
            remove_placement_group(one.group)
        self._jobs.clear()
        self._recorder.close()
        ray.shutdown()

    # -- the connection ----------------------------------------------------------------------------

    def _connect(self) -> None:
        address = self._options.address or os.environ.get("RAY_ADDRESS")
        if address:
            _require_answer(address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address:
                ray.init(address=address, **quiet)
            else:
                ray.init(address="local", include_dashboard=False, **quiet)
                self._is_ours = True
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise EngineError(
                f"cannot connect to Ray at {address or 'this host'}: {error}", "engine ray", _START
            ) from error

    def _listen(self) -> None:
        def heard(future: Future[list[bytes]]) -> None:
            self._recorder.post(lambda: self._take_lines(future))

        self._mailbox.take.remote().future().add_done_callback(heard)

    def _take_lines(self, future: Future[list[bytes]]) -> None:
        if future.exception() is not None:
            return  # the mailbox goes with the driver
        for line in future.result():
            self._hear(events.event_from_json(json.loads(line)))
        self._listen()

    def _hear(self, event: events.SupervisorEvent) -> None:
        match event:
            case events.Started(uid, mode, _, note):
                self._said.append(Started(uid, mode))
                if uid in self._jobs:
                    self._recorder.update(self._jobs[uid].followed, launch_mode=mode, launch_note=note)
            case events.Waiting(uid, what):
                self._said.append(Progress(uid, f"waits for the {what}"))
            case events.Timed(uid, on):
                self._said.append(Progress(uid, "timed" if on else ""))
            case events.Progress(uid, iteration, of):
                self._said.append(Progress(uid, None, iteration, of))
            case events.Notice(text):
                self._said.append(Notice(text))
                return
        one = self._jobs.get(event.attempt_uid)
        if one is not None and not one.heard:
            one.heard = True
            self._recorder.update(one.followed, started_at=_now())

    # -- the end of a node -------------------------------------------------------------------------

    def _when_done(self, uid: str, node_rank: int, ref: Any) -> None:
        def done(future: Future[tuple[NodeReport, NodeFiles]]) -> None:
            self._recorder.post(lambda: self._node_over(uid, node_rank, future))

        ref.future().add_done_callback(done)

    def _node_over(self, uid: str, node_rank: int, future: Future[tuple[NodeReport, NodeFiles]]) -> None:
        one = self._jobs.get(uid)
        if one is None:
            return
        one.over.add(node_rank)
        error = future.exception()
        if error is None:
            report, files = future.result()
            write_files(one.followed.paths, files)
            one.reports[node_rank] = report
        elif one.word.status is None:
            one.word = word_of(error)
        if len(one.over) < len(one.refs):
            if node_rank not in one.reports or not one.reports[node_rank].delivered:
                self._stop(one)
            return
        del self._jobs[uid]
        remove_placement_group(one.group)
        self._recorder.end(one.followed, list(one.reports.values()), one.word)

    def _stop(self, one: _Job) -> None:
        self._mailbox.stop.remote(one.followed.uid)
        if not one.heard:
            for node_rank, ref in enumerate(one.refs):
                if node_rank not in one.over:
                    ray.cancel(ref)

    def _look_for_impossible_ones(self) -> None:
        limit_s = self._options.start_timeout_s
        late = [
            one
            for one in self._jobs.values()
            if not one.heard and not one.over and time.monotonic() - one.since_s > limit_s
        ]
        if not late:
            return
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for one in late:
            one.since_s = time.monotonic()
            nodes = sum(node.get(self._kind, 0) >= one.per_node for node in alive)
            if nodes < one.followed.nodes:
                text = f"Ray has no room any more: {nodes} nodes with {one.per_node} {self._kind}"
                one.word = Word(JobStatus.lost, f"{text}, {one.followed.nodes} are needed")
                self._stop(one)
            elif not one.warned:
                one.warned = True
                uid = one.followed.uid[:8]
                self._said.append(Notice(f"attempt {uid} has waited {limit_s:g} s for room in the cluster"))


def word_of(error: BaseException) -> Word:
    """What the end of a Ray task without a result means for its attempt."""
    if isinstance(error, ray_errors.OutOfMemoryError):
        return Word(JobStatus.oom_host, "Ray killed the node's task: host memory ran out")
    if isinstance(error, ray_errors.TaskCancelledError):
        return Word(JobStatus.cancelled, "its Ray task was cancelled")
    if isinstance(error, ray_errors.RayTaskError):
        cause = error.cause if error.cause is not None else error
        lines = str(cause).strip().splitlines() or [repr(cause)]
        return Word(JobStatus.lost, f"its node could not run it: {lines[-1]}", retry=True)
    name = type(error).__name__
    return Word(JobStatus.lost, f"Ray lost its node or worker ({name})", retry=True)


def _require_answer(address: str) -> None:
    """Raises EngineError where nobody listens: Ray itself would try for minutes."""
    if address.startswith("ray://"):
        fix = "run orch on a node of the cluster and give its address, e.g. auto"
        raise EngineError("orch is a driver, not a Ray Client", f"address {address}", fix)
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _ANSWER_WITHIN_S).close()
    except OSError as error:
        raise EngineError(f"cannot connect to Ray at {address}: {error}", "engine ray", _START) from error


def _wants_gpus() -> bool:
    return os.environ.get("DS_ACCELERATOR", "cuda") == "cuda"


def _capacity(nodes: Sequence[Mapping[str, float]], kind: str) -> Capacity:
    each = [int(node.get(kind, 0)) for node in nodes]
    return Capacity(
        slots=sum(each),
        ranks_per_node=max(each, default=0),
        nodes=sum(1 for count in each if count) or 1,
        accelerator="cuda" if kind == "GPU" else "cpu",
        label=f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}, {sum(each)} {kind}s",
    )


def _now() -> str:
    from orchestrator.launch.attempt import utc_now

    return utc_now()
