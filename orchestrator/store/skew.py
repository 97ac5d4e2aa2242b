"""How far apart are the database's clock and this host's?"""

from __future__ import annotations

import time

from sqlalchemy import text

from orchestrator.store.session import Session

_NOW = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)")


def clock_skew_s(session: Session) -> float | None:
    """Seconds that the database's clock is ahead; None for a file, which has no clock of its own."""
    if session.dialect == "sqlite":
        return None
    before_s = time.time()
    database_s = session.read(lambda connection: float(connection.execute(_NOW).scalar_one()))
    return database_s - (before_s + time.time()) / 2
