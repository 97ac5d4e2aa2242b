"""Open a results database, or say in one line why not."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection

from orchestrator.errors import DatabaseError, DatabaseUnreachable
from orchestrator.store.failures import translate
from orchestrator.store.filesystem import network_file_system
from orchestrator.store.schema import check_server, check_sqlite, check_version, create_schema, found_version
from orchestrator.store.store import Store
from orchestrator.store.url import DatabaseUrl, resolve_url

_MAGIC = b"SQLite format 3\x00"


def open_store(
    url: str | None = None,
    *,
    create: bool = False,
    readonly: bool = False,
    hosts: int = 1,
    patience_s: float = 30.0,
    any_version: bool = False,
) -> Store:
    """Open the database that ``url``, else ``$ORCH_DB``, else the default names.

    Args:
        create: make the database if it is not there; without it nothing is ever created.
        readonly: this store will not write.
        hosts: hosts that will write to it.
        patience_s: for how long a write is tried again while the server is away.
        any_version: leave the schema's version unchecked (for the upgrade).

    Raises:
        DatabaseError: or a subclass, always one line.
    """
    found = resolve_url(url)
    warnings: list[str] = []
    if found.path is not None:
        check_sqlite(sqlite3.sqlite_version_info, found)
        warnings = _check_hosts(found, found.path, hosts)
        _prepare_file(found, found.path, create)
    store = Store(found.text, readonly=readonly, patience_s=patience_s, shown=found.shown)
    store.warnings.extend(warnings)
    try:
        version = store.session.read(lambda connection: _looked_at(connection, found), patience_s=0.0)
        if version is None:
            if not create or readonly:
                raise DatabaseUnreachable("there is nothing in it yet", found.shown, "orch sweep fills it")
            store.session.write(lambda connection: create_schema(connection, found))
        elif not any_version:
            check_version(version, found)
    except BaseException:
        store.close()
        raise
    return store


def _looked_at(connection: Connection, url: DatabaseUrl) -> str | None:
    """The schema's version, once the server is known to be new enough."""
    if url.dialect == "postgresql":
        major, *_ = connection.dialect.server_version_info or (0,)
        check_server(int(major) * 10000, url)
    return found_version(connection, url)


def _check_hosts(url: DatabaseUrl, path: Path, hosts: int) -> list[str]:
    """What to warn of. Raises DatabaseError if several hosts are to write to a file."""
    kind = network_file_system(path.parent)
    fix = "use PostgreSQL: --db postgresql://user@host/orch (docs/clusters.md)"
    if hosts > 1:
        where = f"on a network file system ({kind}) " if kind else ""
        raise DatabaseError(f"SQLite {where}cannot be written by several hosts", url.shown, fix)
    if kind:
        trouble = f"{url.shown} lies on a network file system ({kind}): SQLite's locks may fail there"
        return [f"{trouble}; write to it from this host alone"]
    return []


def _prepare_file(url: DatabaseUrl, path: Path, create: bool) -> None:
    """Raises unless ``path`` is a SQLite file, or was made one."""
    if path.is_dir():
        raise DatabaseUnreachable("it is a folder, not a database", url.shown)
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError as e:
        if not create:
            raise DatabaseUnreachable(
                "there is no such database", url.shown, "orch sweep makes it; --db or $ORCH_DB names another"
            ) from e
        head = b""
    except OSError as e:
        raise DatabaseUnreachable(f"it cannot be read ({e.strerror})", url.shown) from e
    if head == _MAGIC:
        return
    if head or not create:
        what = "it is not a SQLite database" if head else "it is an empty file"
        raise DatabaseError(what, url.shown, "name another with --db or $ORCH_DB")
    _make_file(url, path)


def _make_file(url: DatabaseUrl, path: Path) -> None:
    """An empty database in WAL mode; the mode stays with the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            # An empty WAL database has no page yet: give it one, so that it is known as SQLite's.
            connection.execute("PRAGMA user_version = 0")
    except OSError as e:
        raise DatabaseUnreachable(f"it cannot be made ({e.strerror})", url.shown) from e
    except sqlite3.Error as e:
        if not os.access(path.parent, os.W_OK):
            raise DatabaseUnreachable("its folder cannot be written", url.shown) from e
        raise translate(e, url.shown)[0] from e
