"""Jobs through Ray: a placement group for each attempt, one task a node that starts that node's ranks.

Ray finds the room, restarts nothing (``max_retries=0``): whether a job is tried again is the database's
decision. Everything belongs to this driver, so nothing survives it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from orchestrator.engines.admission import need_of, refusal
from orchestrator.engines.base import Capacity, EngineEvent, Notice
from orchestrator.engines.ray_connection import (
    cluster_capacity,
    connect,
    living_nodes,
    ray,
    scheduling,
    wants_gpus,
    word_of,
)
from orchestrator.engines.ray_node import Mailbox, run_node
from orchestrator.engines.remote import Followed, Recorder, Word, node_orders
from orchestrator.engines.told import engine_event
from orchestrator.launch import events
from orchestrator.launch.clock import utc_now
from orchestrator.launch.orders import new_attempt
from orchestrator.launch.remote_node import NodeFiles, Wish, write_files
from orchestrator.launch.report import NodeReport
from orchestrator.launch.setting import RunSetting
from orchestrator.spec.options import RayOptions
from orchestrator.store.owner import this_owner
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import JobStatus

_STOP_NODES_S = 30.0
_KILL_NODES_S = 5.0
"""Nodes that are to kill look for that twice a second; their end leaves no shared memory behind."""


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

    def __init__(self, setting: RunSetting, options: RayOptions) -> None:
        self._setting = setting
        self._options = options
        is_ours = connect(options)
        nodes = living_nodes()
        self._kind = "GPU" if wants_gpus(nodes) else "CPU"
        self._capacity = cluster_capacity(nodes, self._kind)
        self.hosts = 1 if is_ours else 2
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
        here = scheduling.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        # max_calls=0: a worker that had a GPU is used again, with its fork server.
        self._run_node = ray.remote(max_retries=0, max_calls=0, num_cpus=0)(run_node)
        self._listen()

    def reserve(self, job: JobRow) -> NewAttempt | None:
        """Room by the cluster's size; at most one job waits for what is not free yet."""
        used = sum(self._reserved.values()) + sum(one.ranks for one in self._jobs.values())
        slots = self._capacity.slots or 1
        need = need_of(job)
        if used > slots or (used == slots and any(not one.heard for one in self._jobs.values())):
            return None
        draft = new_attempt(self._setting, self.name, self._sweep_uid, self._owner)
        self._reserved[draft.uid] = need.ranks_per_node * need.nodes
        return draft

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
        group = ray.util.placement_group(bundles, strategy=strategy, name=f"orch-{attempt.uid}")
        one = _Job(followed, group, need.ranks_per_node * need.nodes, need.ranks_per_node)
        self._jobs[attempt.uid] = one
        self._recorder.begin(followed)
        self._recorder.update(followed, engine_job=group.id.hex())
        for order in orders:
            place = scheduling.PlacementGroupSchedulingStrategy(group, order.node_rank)
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
            if self._recorder.wait(self._wake_fd, deadline_s):
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
        self._wake_fd = None  # one more Ctrl-C changes nothing now
        if kill:
            for one in list(self._jobs.values()):
                self._stop(one, Wish.KILL)
        deadline_s = time.monotonic() + (_KILL_NODES_S if kill else _STOP_NODES_S)
        while self._jobs and time.monotonic() < deadline_s:
            self.poll(0.1)
        for one in self._jobs.values():
            ray.util.remove_placement_group(one.group)
            if one.followed.cancelled:
                self._recorder.end(one.followed, list(one.reports.values()), one.word)
        self._jobs.clear()
        self._recorder.close()
        ray.shutdown()

    # -- what nodes tell ---------------------------------------------------------------------------

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
        told = engine_event(event)
        if told is not None:
            self._said.append(told)
        if isinstance(event, events.Notice):
            return
        if isinstance(event, events.Started) and event.attempt_uid in self._jobs:
            followed = self._jobs[event.attempt_uid].followed
            self._recorder.update(followed, launch_mode=event.launch_mode, launch_note=event.note)
        one = self._jobs.get(event.attempt_uid)
        if one is not None and not one.heard:
            one.heard = True
            self._recorder.update(one.followed, started_at=utc_now())

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
        ray.util.remove_placement_group(one.group)
        self._recorder.end(one.followed, list(one.reports.values()), one.word)

    def _stop(self, one: _Job, wish: Wish = Wish.STOP) -> None:
        self._mailbox.want.remote(one.followed.uid, wish)
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
        alive = living_nodes()
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
