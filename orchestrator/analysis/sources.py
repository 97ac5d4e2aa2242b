"""Where do measurements come from: the results database, if there is one."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from orchestrator.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from pandas import DataFrame


def measured_or_none(database: str) -> DataFrame | None:
    """Every valid job of the database; None if there is no such database.

    Raises:
        DatabaseError: there is one that cannot be read.
    """
    from orchestrator.analysis.sides import read_only
    from orchestrator.store.queries_stats import measured_jobs
    from orchestrator.store.url import resolve_url

    try:
        with read_only(database) as store:
            return measured_jobs(store)
    except DatabaseUnreachable:
        path = resolve_url(database).path
        # A silent server and a folder are mistakes; a file that is not there has measured nothing.
        if path is None or path.exists():
            raise
        return None


def this_host() -> str:
    """This host's name as measurements carry it."""
    return socket.gethostname()
