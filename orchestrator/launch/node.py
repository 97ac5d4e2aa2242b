"""One node of one attempt, started by Slurm's ``srun`` or as a Ray task.

``python -m orchestrator.launch.node --order FILE --node-rank K``: FILE holds a launch order, or
``{"nodes": [order, ...]}`` with one for each node. The node's ranks run under the same supervision as on
the local engine. What happens is told in ``node.K.events`` in the run directory, what became of the ranks
is left as ``node.K.json``; whoever knows all nodes judges. Exit status 0 if and only if every rank of this
node has delivered.
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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import EngineError, OrchError
from orchestrator.launch.clock import utc_now
from orchestrator.launch.events import Ended, Progress, SupervisorEvent, event_to_line
from orchestrator.launch.finisher import HEARTBEAT_S, Finisher
from orchestrator.launch.order import LaunchOrder, RankPlacement, order_from_json
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.publish import publish
from orchestrator.launch.report import NodeReport, report_from_json, report_of, report_to_json
from orchestrator.launch.supervisor import Supervisor

if TYPE_CHECKING:
    from orchestrator.launch.devices import Device
    from orchestrator.launch.meeting import Meeting
    from orchestrator.launch.spares import Spares

_PROGRESS_EVERY_S = 1.0


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
    if order.accelerator == "cpu" or all(rank.device_uuid for rank in order.ranks):
        return order
    from orchestrator.launch.devices import inventory

    visible = inventory().devices
    wanted = order.local_size + sum(len(group) for group in order.neighbours)
    if len(visible) < wanted:
        raise EngineError(f"{wanted} ranks but {len(visible)} devices on {socket.gethostname()}")
    left = iter(visible)
    groups = [tuple(_on(rank, next(left)) for rank in group) for group in (order.ranks, *order.neighbours)]
    return replace(order, ranks=groups[0], neighbours=tuple(groups[1:]))


def _on(rank: RankPlacement, device: Device) -> RankPlacement:
    return replace(rank, device_index=device.index, device_uuid=device.uuid, numa_node=device.numa_node)


def probe_if_wanted(order: LaunchOrder) -> None:
    """Measure the link of this node's devices first, if that is due."""
    if order.probe_every_s is not None and (order.accelerator != "cpu" or order.probe_command):
        from orchestrator.launch.nodeprobe import probe_before

        probe_before(order)


class _Events:
    """Appends what happens to a file that orch reads while the job runs; progress once a second at most."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._last_progress_s = 0.0

    def tell(self, event: SupervisorEvent) -> None:
        """Write one event as a line."""
        if isinstance(event, Progress):
            now_s = time.monotonic()
            if now_s - self._last_progress_s < _PROGRESS_EVERY_S:
                return
            self._last_progress_s = now_s
        line = {**json.loads(event_to_line(event)), "at": utc_now()}
        self._file.write(json.dumps(line).encode() + b"\n")


def run_node(
    order: LaunchOrder, tell: Callable[[SupervisorEvent], None], spares: Spares | None = None
) -> NodeReport:
    """Run this node's ranks to their end and leave the report in the run directory."""
    order = replace(place_on_devices(order), finish=False)
    if order.launcher == "fork":
        # A server would import as much as the ranks themselves, and serve them alone.
        order = replace(order, launcher="spawn")
    probe_if_wanted(order)
    meeting: Meeting | None = None
    if order.num_nodes > 1:
        from orchestrator.launch.meeting import FolderBoard, Meeting

        meeting = Meeting(order, FolderBoard(Path(order.run_dir) / "nodes"))
        order = meeting.agree()

    def take(event: SupervisorEvent) -> None:
        tell(event)
        if isinstance(event, Ended):
            supervisor.loop.stop()

    supervisor = Supervisor(take, spares=spares)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number,
            lambda n, _f: supervisor.loop.post(
                lambda: supervisor.stop_all(f"the node was told to stop ({signal.Signals(n).name})")
            ),
        )
    finishers: list[Finisher] = []
    if order.node_rank == 0 and order.db_url is not None:
        # Later: a short attempt needs no heartbeat, and the database's library takes a third of a second.
        supervisor.loop.call_later(HEARTBEAT_S, lambda: finishers.append(_heartbeat(order, supervisor)))
    try:
        attempt = supervisor.start(order)
        supervisor.loop.run()
    finally:
        supervisor.close()
        if meeting is not None:
            meeting.end()
        for finisher in finishers:
            finisher.close(0.0)
    report = report_of(attempt, socket.gethostname())
    publish(report_path(AttemptPaths(Path(order.run_dir)), order.node_rank), report_to_json(report))
    return report


def _heartbeat(order: LaunchOrder, supervisor: Supervisor) -> Finisher:
    finisher = Finisher(str(order.db_url), supervisor.loop.post)
    finisher.keep_alive({order.attempt_id})
    return finisher


def report_path(paths: AttemptPaths, node_rank: int) -> Path:
    """Where a node leaves what became of its ranks."""
    return paths.run_dir / f"node.{node_rank}.json"


def events_path(paths: AttemptPaths, node_rank: int) -> Path:
    """Where a node tells what happens while its ranks run."""
    return paths.run_dir / f"node.{node_rank}.events"


def read_reports(paths: AttemptPaths, num_nodes: int) -> list[NodeReport]:
    """The reports of the nodes that have left one."""
    found = []
    for node_rank in range(num_nodes):
        try:
            body = json.loads(report_path(paths, node_rank).read_text(encoding="utf-8"))
            found.append(report_from_json(body))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def run_order(path: str, node_rank: int, spares: Spares | None = None) -> int:
    """Run the order in a file; the exit status of this process."""
    try:
        order = load_order(Path(path), node_rank)
        paths = AttemptPaths(Path(order.run_dir))
        paths.run_dir.mkdir(parents=True, exist_ok=True)
        report = run_node(order, _Events(events_path(paths, order.node_rank)).tell, spares)
    except OrchError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0 if report.delivered else 1


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.launch.node")
    parser.add_argument("--order", required=True)
    parser.add_argument("--node-rank", type=int, default=int(os.environ.get("SLURM_NODEID", "0")))
    arguments = parser.parse_args()
    return run_order(arguments.order, arguments.node_rank)


if __name__ == "__main__":
    sys.exit(main())
