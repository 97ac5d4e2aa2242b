"""How do the nodes of one attempt find each other? Through a board that all of them can read and write.

They agree on where rank 0 listens, and hold the timed sections of all their hosts before any rank starts.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from orchestrator.errors import EngineError
from orchestrator.launch.hoststate import TimedSection
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.ports import PortLease, lease_port
from orchestrator.launch.publish import publish

_POLL_S = 0.1
_PATIENCE_S = 3600.0
"""How long a node waits for the others; Slurm starts all nodes together, Ray nearly so."""
T = TypeVar("T")

_HERE = ("", "127.0.0.1", "localhost")


class Board(Protocol):
    """Notes of all nodes of one attempt."""

    def put(self, key: str, note: Mapping[str, object]) -> None:
        """Pin a note up."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """A note, or None while it is not there."""


class FolderBoard:
    """A folder that every node sees."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, note: Mapping[str, object]) -> None:
        """See ``Board``."""
        publish(self._folder / f"{key}.json", dict(note))

    def get(self, key: str) -> Mapping[str, Any] | None:
        """See ``Board``."""
        try:
            found: Mapping[str, Any] = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except OSError:
            return None
        return found


class Meeting:
    """One node's part in the agreement.

    Args:
        address: how the other nodes reach this host; None = its name.
    """

    def __init__(self, order: LaunchOrder, board: Board, address: str | None = None) -> None:
        self._order = order
        self._board = board
        self._address = address or socket.gethostname()
        self._lease: PortLease | None = None
        self._section = TimedSection()

    def agree(self) -> LaunchOrder:
        """Wait for all nodes; the order with rank 0's address and port, the timed sections held."""
        order = self._order
        here: dict[str, object] = {"host": socket.gethostname()}
        if order.node_rank == 0:
            here["address"] = self._address if order.master_addr in _HERE else order.master_addr
            if order.port is None:
                self._lease = lease_port()
            here["port"] = order.port or (self._lease.port if self._lease else None)
        self._board.put(f"here.{order.node_rank}", here)
        told = [self._read(f"here.{node}", f"node {node}") for node in range(order.num_nodes)]
        if order.timed_section:
            self._lock_in_order([str(each["host"]) for each in told])
        first = told[0]
        return replace(order, port=int(first["port"]), master_addr=str(first["address"]), timed_section=False)

    def end(self) -> None:
        """Free the port and the timed section."""
        self._section.release()
        if self._lease is not None:
            self._lease.release()

    def _lock_in_order(self, hosts: list[str]) -> None:
        """Hosts by name, so that two attempts cannot block each other; of nodes on one host the first."""
        me = self._order.node_rank
        mine = (hosts[me], me)
        for node in sorted(range(len(hosts)), key=lambda node: (hosts[node], node)):
            if (hosts[node], node) < mine:
                self._read(f"locked.{node}", f"the timed section of {hosts[node]}")
        if hosts.index(hosts[me]) == me:
            wait_for(lambda: self._section.try_acquire() or None, "this host's timed section")
        self._board.put(f"locked.{me}", {"at": time.time()})
        for node, host in enumerate(hosts):
            self._read(f"locked.{node}", f"the timed section of {host}")

    def _read(self, key: str, what: str) -> Mapping[str, Any]:
        return wait_for(lambda: self._board.get(key), what)


def wait_for(look: Callable[[], T | None], what: str) -> T:
    """The first answer that is not None; EngineError if there is none for too long."""
    deadline = time.monotonic() + _PATIENCE_S
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise EngineError(f"waited {_PATIENCE_S:.0f} s for {what}")
        time.sleep(_POLL_S)
    return found
