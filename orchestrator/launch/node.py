"""One node of one attempt, started by Slurm's ``srun`` or as a Ray task.

``python -m orchestrator.launch.node --order FILE --node-rank K``: FILE holds a launch order, or
``{"nodes": [order, ...]}`` with one for each node. The node's ranks run under the same supervision as on
the local engine; what became of them is left as ``node.K.json`` in the run directory. Exit status 0 if and
only if every rank of this node has delivered.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import EngineError, OrchError
from orchestrator.launch.devices import inventory
from orchestrator.launch.events import (
    Ended,
    SupervisorEvent,
    event_to_line,
    verdict_from_json,
    verdict_to_json,
)
from orchestrator.launch.hoststate import TimedSection
from orchestrator.launch.order import LaunchOrder, order_from_json
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.ports import PortLease, lease_port
from orchestrator.launch.supervisor import Supervisor
from orchestrator.store.status import FailureKind, JobStatus, Verdict

_POLL_S = 0.1
_PATIENCE_S = 3600.0
"""How long a node waits for the others' files; Slurm starts all nodes together, Ray nearly so."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What became of one node's ranks."""

    node_rank: int
    host: str
    verdict: Verdict
    retry: bool
    columns: dict[str, object]


def load_order(path: Path, node_rank: int) -> LaunchOrder:
    """This node's order; EngineError if the file is not one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "nodes" in document:
            document = document["nodes"][node_rank]
        return replace(order_from_json(document), node_rank=node_rank)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise EngineError(f"not a launch order: {error}", str(path)) from error


def place_on_devices(order: LaunchOrder) -> LaunchOrder:
    """Give ranks that name no device one of those that the scheduler left visible here."""
    if order.accelerator != "cuda" or all(rank.device_uuid for rank in order.ranks):
        return order
    visible = inventory().devices
    if len(visible) < order.local_size:
        raise EngineError(f"{order.local_size} ranks but {len(visible)} devices on {socket.gethostname()}")
    placed = tuple(
        replace(rank, device_index=device.index, device_uuid=device.uuid, numa_node=device.numa_node)
        for rank, device in zip(order.ranks, visible, strict=False)
    )
    return replace(order, ranks=placed)


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise EngineError(f"waited {_PATIENCE_S:.0f} s for {what}")
        time.sleep(_POLL_S)


def _publish(path: Path, document: object) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document), encoding="utf-8")
    os.replace(temporary, path)


class Meeting:
    """The nodes of one attempt find each other through its (shared) run directory."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order = order
        self._folder = Path(order.run_dir) / "nodes"
        self._lease: PortLease | None = None
        self._section = TimedSection()

    def agree(self) -> LaunchOrder:
        """Wait for all nodes, agree on a port, and hold the timed sections of all hosts.

        Hosts are locked in the order of their names, so that two attempts cannot block each other.
        """
        order = self._order
        self._folder.mkdir(parents=True, exist_ok=True)
        here: dict[str, object] = {"host": socket.gethostname()}
        if order.node_rank == 0:
            here["address"] = order.master_addr
            if order.master_addr in ("", "127.0.0.1", "localhost"):
                here["address"] = socket.gethostname()
            if order.port is None:
                self._lease = lease_port()
            here["port"] = order.port or (self._lease.port if self._lease else None)
        _publish(self._here(order.node_rank), here)
        nodes = range(order.num_nodes)
        _await(lambda: all(self._here(node).exists() for node in nodes), "the other nodes")
        told = [json.loads(self._here(node).read_text(encoding="utf-8")) for node in nodes]
        if order.timed_section:
            self._lock_in_order([str(each["host"]) for each in told])
        return replace(
            order, port=int(told[0]["port"]), master_addr=str(told[0]["address"]), timed_section=False
        )

    def end(self) -> None:
        """Free the port and the timed section."""
        self._section.release()
        if self._lease is not None:
            self._lease.release()

    def _here(self, node_rank: int) -> Path:
        return self._folder / f"here.{node_rank}.json"

    def _lock_in_order(self, hosts: Sequence[str]) -> None:
        own, whose = socket.gethostname(), "the other hosts' timed sections"
        before = [node for node, host in enumerate(hosts) if host < own]
        _await(lambda: all(self._locked(node).exists() for node in before), whose)
        _await(self._section.try_acquire, "this host's timed section")
        _publish(self._locked(self._order.node_rank), {"at": time.time()})
        everyone = range(self._order.num_nodes)
        _await(lambda: all(self._locked(node).exists() for node in everyone), whose)

    def _locked(self, node_rank: int) -> Path:
        return self._folder / f"locked.{node_rank}.json"


def run_node(order: LaunchOrder, tell: Callable[[SupervisorEvent], None]) -> Verdict:
    """Run this node's ranks to their end and leave the result in the run directory."""
    order = place_on_devices(order)
    if order.launcher == "fork":
        # A server would import as much as the ranks themselves, and serve them alone.
        order = replace(order, launcher="spawn")
    meeting = Meeting(order) if order.num_nodes > 1 else None
    if meeting is not None:
        order = replace(meeting.agree(), finish=False)
    ended: list[Ended] = []

    def take(event: SupervisorEvent) -> None:
        tell(event)
        if isinstance(event, Ended):
            ended.append(event)
            supervisor.loop.stop()

    supervisor = Supervisor(take)
    if order.node_rank == 0:
        supervisor.open_database(order.db_url)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number,
            lambda n, _f: supervisor.loop.post(
                lambda: supervisor.stop_all(f"the node was told to stop ({signal.Signals(n).name})")
            ),
        )
    try:
        attempt = supervisor.start(order)
        supervisor.loop.run()
    finally:
        supervisor.close()
        if meeting is not None:
            meeting.end()
    [event] = ended
    result = {
        "node_rank": order.node_rank,
        "host": socket.gethostname(),
        "retry": event.retry,
        "columns": attempt.columns(),
        **verdict_to_json(event.verdict),
    }
    _publish(result_path(AttemptPaths(Path(order.run_dir)), order.node_rank), result)
    return event.verdict


def result_path(paths: AttemptPaths, node_rank: int) -> Path:
    """Where a node leaves what became of its ranks."""
    return paths.run_dir / f"node.{node_rank}.json"


def read_results(paths: AttemptPaths, num_nodes: int) -> list[NodeResult]:
    """The results of the nodes that have left one."""
    found = []
    for node_rank in range(num_nodes):
        try:
            body: dict[str, Any] = json.loads(result_path(paths, node_rank).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        found.append(
            NodeResult(node_rank, body["host"], verdict_from_json(body), body["retry"], body["columns"])
        )
    return found


def combine(results: Sequence[NodeResult], num_nodes: int, scheduler_says: str | None = None) -> Verdict:
    """The verdict on an attempt of several nodes: ok if and only if every node's is.

    ``scheduler_says`` is why the scheduler ended the job, for nodes that left no result.
    """
    bad = [result for result in results if result.verdict.status != JobStatus.ok]
    # A node whose ranks were only stopped says less than the one whose rank failed.
    bad.sort(key=lambda result: (result.verdict.status == JobStatus.cancelled, result.node_rank))
    if bad:
        verdict = bad[0].verdict
        return Verdict(verdict.status, verdict.failure_kind, f"{bad[0].host}: {verdict.message}")
    missing = sorted(set(range(num_nodes)) - {result.node_rank for result in results})
    if missing:
        names = ", ".join(map(str, missing))
        said = f" ({scheduler_says})" if scheduler_says else ""
        return Verdict(JobStatus.failed, FailureKind.no_result, f"no result of node {names}{said}")
    return Verdict(JobStatus.ok, None, None)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.launch.node")
    parser.add_argument("--order", type=Path, required=True)
    parser.add_argument("--node-rank", type=int, default=int(os.environ.get("SLURM_NODEID", "0")))
    arguments = parser.parse_args()

    def tell(event: SupervisorEvent) -> None:
        sys.stdout.buffer.write(event_to_line(event))
        sys.stdout.buffer.flush()

    try:
        verdict = run_node(load_order(arguments.order, arguments.node_rank), tell)
    except OrchError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0 if verdict.status == JobStatus.ok else 1


if __name__ == "__main__":
    sys.exit(main())
