"""How far is this host's clock from the database's?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import select

from orchestrator.store.attempts import database_clock

if TYPE_CHECKING:
    from orchestrator.store.store import Store


def clock_skew_s(store: Store) -> float:
    """Seconds by which this host's clock is ahead of the database's; about zero for SQLite."""
    before_s = time.time()
    theirs_s = store.session.read(lambda c: c.execute(select(database_clock(c))).scalar_one())
    return (before_s + time.time()) / 2 - float(theirs_s)
