"""Ids from the counter table, and the events that use most of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from sqlalchemy import Connection, bindparam, insert, update

from orchestrator.store.clock import utc_now
from orchestrator.store.tables import counter, event

_TAKE = (
    update(counter)
    .where(counter.c.name == bindparam("of"))
    .values(next_id=counter.c.next_id + bindparam("many"))
    .returning(counter.c.next_id)
)
_EVENT = insert(event)


class NewEvent(TypedDict, total=False):
    """Columns of ``event`` without id and time."""

    sweep_id: int | None
    job_id: int | None
    attempt_id: int | None
    kind: str
    from_status: str | None
    to_status: str | None
    message: str | None


def take_ids(connection: Connection, table: str, many: int = 1) -> int:
    """The first of ``many`` ids in a row."""
    after = connection.execute(_TAKE, {"of": table, "many": many}).scalar_one()
    return int(after) - many


def add_events(connection: Connection, events: Sequence[NewEvent]) -> None:
    """Append events, now."""
    if not events:
        return
    first, at = take_ids(connection, "event", len(events)), utc_now()
    blank = dict.fromkeys(("sweep_id", "job_id", "attempt_id", "from_status", "to_status", "message"))
    connection.execute(
        _EVENT, [{**blank, **new, "event_id": first + i, "at": at} for i, new in enumerate(events)]
    )
