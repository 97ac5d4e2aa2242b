"""What runs in the cluster: the mailbox beside the driver, and one task for each node of an attempt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.engines.ray_connection import ray
from orchestrator.launch import events
from orchestrator.launch.order import order_from_json
from orchestrator.launch.remote_node import NodeFiles, Wish, run_here
from orchestrator.launch.report import NodeReport


class Mailbox:
    """What nodes tell orch, what orch tells nodes, and the boards of attempts; an actor beside the driver."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._wishes: dict[str, int] = {}
        self._notes: dict[str, Mapping[str, object]] = {}
        self._news = asyncio.Event()

    async def tell(self, uid: str, lines: list[bytes]) -> int:
        """Take events in; what orch wants of the attempt, a ``Wish``."""
        if lines:
            self._lines += lines
            self._news.set()
        return self._wishes.get(uid, Wish.GO_ON)

    async def take(self) -> list[bytes]:
        """The events since the last call, as soon as there are some."""
        await self._news.wait()
        self._news.clear()
        lines, self._lines = self._lines, []
        return lines

    async def want(self, uid: str, wish: int) -> None:
        """Orch wants that of the attempt."""
        self._wishes[uid] = max(wish, self._wishes.get(uid, wish))

    async def put(self, key: str, note: Mapping[str, object]) -> None:
        """Pin a note to a board."""
        self._notes[key] = note

    async def get(self, key: str) -> Mapping[str, object] | None:
        """A note of a board."""
        return self._notes.get(key)


class ActorBoard:
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


def run_node(order_json: str, token: str, mailbox: Any) -> tuple[NodeReport, NodeFiles]:
    """One node of one attempt; runs in a Ray worker."""
    order = order_from_json(json.loads(order_json))
    uid = order.attempt_uid

    def talk(said: Sequence[events.SupervisorEvent]) -> Wish:
        return Wish(ray.get(mailbox.tell.remote(uid, [events.event_to_line(event) for event in said])))

    board = ActorBoard(mailbox, uid) if order.num_nodes > 1 else None
    return run_here(order, token, talk, board, ray.util.get_node_ip_address())
