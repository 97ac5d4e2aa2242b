"""One node of one attempt inside a process that serves many, one after the other: a Ray worker.

The supervisor, and in it the fork server, lives as long as the process, so a short job costs no start of
Python. When the process goes, the supervisor sees the end of its input, kills everything and leaves: the
devices are others' from then on.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from orchestrator.errors import EngineError
from orchestrator.launch.client import SupervisorClient
from orchestrator.launch.events import Ended, Progress, SupervisorEvent
from orchestrator.launch.hoststate import state_dir
from orchestrator.launch.meeting import Board, Meeting
from orchestrator.launch.node import place_on_devices, probe_if_wanted
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.report import NodeReport, report_from_json

_ASK_EVERY_S = 0.5
_LOG_TAIL_BYTES = 1 << 20
_STOPPED = "orch stopped it"
_client: SupervisorClient | None = None


class Wish(IntEnum):
    """What orch wants of an attempt; a later one includes the earlier."""

    GO_ON = 0
    STOP = 1
    KILL = 2


Talk = Callable[[Sequence[SupervisorEvent]], Wish]
"""Passes events on; answers what orch wants of the attempt."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """What a node has written where orch cannot read it; empty if orch sees the folder itself.

    Attributes:
        logs: ends of the logs, by name.
        spools: the records, by name.
    """

    logs: dict[str, bytes]
    spools: dict[str, bytes]


def run_here(
    order: LaunchOrder, token: str, talk: Talk, board: Board | None, address: str | None
) -> tuple[NodeReport, NodeFiles]:
    """Run this node's ranks under this process's supervisor; their report, and their files if need be.

    Args:
        token: a file in the run directory that tells whether orch and this node see the same one.
        board: where the nodes of one attempt meet; None for a single node.
        address: how other nodes reach this host.
    """
    shared = (Path(order.run_dir) / token).exists()
    if not shared:
        order = replace(order, run_dir=str(state_dir() / "attempts" / order.attempt_uid))
    order = replace(place_on_devices(order), finish=False)
    probe_if_wanted(order)
    meeting = Meeting(order, board, address) if board is not None and order.num_nodes > 1 else None
    try:
        if meeting is not None:
            order = meeting.agree()
        report = _supervised(order, talk)
    finally:
        if meeting is not None:
            meeting.end()
    if shared:
        return report, NodeFiles({}, {})
    files = _files(AttemptPaths(Path(order.run_dir)))
    shutil.rmtree(order.run_dir, ignore_errors=True)
    return report, files


def _supervised(order: LaunchOrder, talk: Talk) -> NodeReport:
    client = _supervisor()
    client.start(order)
    while True:
        try:
            return _follow(client, order, talk)
        except KeyboardInterrupt:  # how Ray cancels a task
            client.stop(order.attempt_uid, _STOPPED)
        except BaseException:  # nobody is there to ask any more: this process may live on, its ranks must not
            client.close()
            raise


def _follow(client: SupervisorClient, order: LaunchOrder, talk: Talk) -> NodeReport:
    told, next_s, obeyed = list[SupervisorEvent](), time.monotonic() + _ASK_EVERY_S, Wish.GO_ON
    while True:
        select.select([client], [], [], max(next_s - time.monotonic(), 0.0))
        for event in client.events():
            if isinstance(event, Ended) and event.attempt_uid == order.attempt_uid:
                if told:
                    talk(told)
                assert event.report is not None
                return replace(report_from_json(event.report), node_rank=order.node_rank)
            if isinstance(event, Progress):
                told = [one for one in told if not isinstance(one, Progress)]
            told.append(event)
        if not client.alive:
            raise EngineError(f"the supervisor on {socket.gethostname()} died")
        if time.monotonic() >= next_s or any(not isinstance(one, Progress) for one in told):
            wish = talk(told)
            if wish > obeyed:
                obeyed = wish
                if wish is Wish.KILL:
                    client.kill_all(_STOPPED)
                else:
                    client.stop(order.attempt_uid, _STOPPED)
            told, next_s = [], time.monotonic() + _ASK_EVERY_S


def _supervisor() -> SupervisorClient:
    global _client
    if _client is None or not _client.alive:
        log = state_dir() / f"supervisor-{os.getpid()}.log"
        _client = SupervisorClient(db_url=None, log_path=log, kill_at_end=True)
        atexit.register(_client.close)
    return _client


def _files(paths: AttemptPaths) -> NodeFiles:
    logs = {path.name: _tail(path) for path in paths.run_dir.glob("*.log")}
    return NodeFiles(logs, {path.name: path.read_bytes() for path in paths.spool_dir.glob("*.jsonl")})


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _LOG_TAIL_BYTES, 0))
        return file.read()


def write_files(paths: AttemptPaths, files: NodeFiles) -> None:
    """Lay a node's files down where orch looks for them."""
    for folder, part in ((paths.run_dir, files.logs), (paths.spool_dir, files.spools)):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in part.items():
            (folder / Path(name).name).write_bytes(content)
