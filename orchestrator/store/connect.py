"""How is the database connected to? Pragmas, transactions, time-outs; one engine a store."""

from __future__ import annotations

import sqlite3
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from orchestrator.errors import DatabaseError
from orchestrator.store.url import DatabaseUrl

BUSY_TIMEOUT_S = 30.0
WRITES = "orch_writes"
"""Execution option of a connection whose next transaction writes."""

_PRAGMAS = (
    "PRAGMA foreign_keys = ON",
    # WAL keeps the file whole after a power cut at NORMAL; the spool holds what the cut may take.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA cache_size = -16000",
    "PRAGMA temp_store = MEMORY",
)


def make_engine(url: DatabaseUrl, *, readonly: bool = False) -> Engine:
    """An engine that has not connected yet."""
    return _sqlite_engine(url, readonly) if url.dialect == "sqlite" else _postgresql_engine(url, readonly)


def sqlite_connection(url: DatabaseUrl, *, readonly: bool) -> sqlite3.Connection:
    """A connection to an existing file; it never creates one.

    A reader opens for writing under ``query_only``: a connection that is read-only for SQLite leaves
    ``-wal`` and ``-shm`` files behind that nobody removes.
    """
    connection = _open_sqlite(url, "mode=rw")
    try:
        for pragma in (*_PRAGMAS, "PRAGMA query_only = ON") if readonly else _PRAGMAS:
            connection.execute(pragma)
        if readonly:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as e:
        connection.close()
        if not readonly or not str(e).startswith(("unable to open", "attempt to write")):
            raise
        # A folder that may not be written has no room for the -wal; without one the file cannot change.
        connection = _open_sqlite(url, "immutable=1")
    return connection


def _open_sqlite(url: DatabaseUrl, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(url.path))}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _sqlite_engine(url: DatabaseUrl, readonly: bool) -> Engine:
    engine = create_engine(
        "sqlite+pysqlite://",
        creator=lambda: sqlite_connection(url, readonly=readonly),
        poolclass=QueuePool,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred transaction that reads and then writes fails at once while another writes.
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql_engine(url: DatabaseUrl, readonly: bool) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError as e:
        raise DatabaseError(
            "PostgreSQL needs psycopg 3", url.shown, "pip install 'offload-orch[postgres]'"
        ) from e
    options = f"-c timezone=UTC -c lock_timeout={int(BUSY_TIMEOUT_S * 1000)}"
    if readonly:
        options += " -c default_transaction_read_only=on"
    return create_engine(
        make_url(url.text).set(drivername="postgresql+psycopg"),
        connect_args={
            "connect_timeout": 10,
            # A host that died without a word must not keep its locks for two hours.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "application_name": "orch",
            "options": options,
        },
        pool_size=4,
    )
