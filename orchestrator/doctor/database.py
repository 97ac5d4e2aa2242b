"""The results database: where it lies, whether it can be shared, whether its clock agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.doctor.finding import Finding, error, ok, warn
from orchestrator.errors import DatabaseError
from orchestrator.store.filesystem import network_file_system
from orchestrator.store.url import DatabaseUrl, resolve_url

_SKEW_S = 5.0
"""Twelve times less than the age at which another host's heartbeat counts as lost."""


def database_folder(db: str) -> Path:
    """Where results are written on this host: the SQLite file's folder, else the current one."""
    path = resolve_url(db).path
    return path.parent if path else Path.cwd()


def check_database(db: str) -> list[Finding]:
    """The database answers, can be shared the way it is used, and its clock agrees with the host's."""
    url = resolve_url(db)
    findings = list(_network(url))
    if url.path is not None and not url.path.exists():
        return [ok("database", f"no results yet; the first sweep makes {url.shown}", db), *findings]
    return [*_opened(url), *findings]


def _network(url: DatabaseUrl) -> Iterator[Finding]:
    kind = None if url.path is None else network_file_system(url.path.parent)
    if kind:
        message = f"{url.shown} lies on a network file system ({kind}): several hosts must not write to it"
        mend = "use PostgreSQL (--db postgresql://user@host/orch), or a local file for one host"
        yield warn("database", message, "mounts", mend)


def _opened(url: DatabaseUrl) -> Iterator[Finding]:
    from orchestrator.store import open_store
    from orchestrator.store.skew import clock_skew_s

    try:
        with open_store(url.text, readonly=True, patience_s=5.0) as store:
            skew_s = clock_skew_s(store)
    except DatabaseError as failure:
        yield error("database", f"{url.shown}: {failure.what}", type(failure).__name__, failure.fix)
        return
    yield ok("database", f"results go to {url.shown}", "opened for reading")
    if abs(skew_s) > _SKEW_S:
        ahead = "ahead of" if skew_s > 0 else "behind"
        message = f"this host's clock is {abs(skew_s):.0f} s {ahead} the database's: times will not line up"
        yield warn("clock", message, "clock_timestamp()", "timedatectl set-ntp true, on both")
