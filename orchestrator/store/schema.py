"""Which schema has a database, and is it one that this orch knows?"""

from __future__ import annotations

from importlib.resources import files

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import DatabaseError, DatabaseVersion
from orchestrator.store.tables import alembic_version
from orchestrator.store.url import DatabaseUrl

SCHEMA_VERSION = "0001"
"""The version that ``schema.sql`` creates; the newest under ``migrations/versions``."""

OLDEST_POSTGRESQL = 150000
OLDEST_SQLITE = (3, 35, 0)
"""The first with UPDATE ... RETURNING."""


def schema_sql() -> str:
    """``schema.sql``, which is in the wheel."""
    return (files("orchestrator.store") / "schema.sql").read_text(encoding="utf-8")


def create_schema(connection: Connection, url: DatabaseUrl) -> None:
    """Lay down tables and views; harmless if another process just did. Needs a writing transaction."""
    if url.dialect == "postgresql":
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7021)")
    if inspect(connection).has_table("alembic_version"):
        return
    for statement in statements(schema_sql()):
        connection.exec_driver_sql(statement)


def statements(script: str) -> list[str]:
    """The statements of a script without comments; no string in ``schema.sql`` holds ``;`` or ``--``."""
    bare = "\n".join(line.partition("--")[0].rstrip() for line in script.splitlines())
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


def found_version(connection: Connection, url: DatabaseUrl) -> str | None:
    """The schema's version; None for an empty database.

    Raises:
        DatabaseError: it is somebody else's.
    """
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if not {"alembic_version", "counter", "sweep", "job"} <= names:
        raise DatabaseError(
            "it is a database, but not one of orch", url.shown, "name another with --db or $ORCH_DB"
        )
    try:
        version = connection.execute(select(alembic_version.c.version_num)).scalar_one_or_none()
    except DBAPIError as e:
        raise DatabaseError("its version cannot be read", url.shown) from e
    if version is None or not str(version).isdigit():
        raise DatabaseError(f"its schema version '{version}' is not one of orch's", url.shown)
    return str(version)


def check_version(version: str, url: DatabaseUrl, newest: str = SCHEMA_VERSION) -> None:
    """Raises DatabaseVersion, naming both versions, unless this orch works with ``version``."""
    if int(version) > int(newest):
        raise DatabaseVersion(
            f"its schema {version} is newer than {newest}, the newest this orch knows",
            url.shown,
            "upgrade orch: pip install -U offload-orch",
        )
    if int(version) < int(newest):
        raise DatabaseVersion(
            f"its schema {version} is older than {newest}, which this orch needs",
            url.shown,
            "upgrade it (a backup is made first): orch db upgrade",
        )


def check_sqlite(version: tuple[int, int, int], url: DatabaseUrl) -> None:
    """Raises DatabaseVersion if the SQLite that Python was built with is too old."""
    if version < OLDEST_SQLITE:
        raise DatabaseVersion(
            f"this Python's SQLite {'.'.join(map(str, version))} is too old",
            url.shown,
            f"use a Python with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer, or PostgreSQL",
        )


def check_server(version: int, url: DatabaseUrl) -> None:
    """Raises DatabaseVersion if the PostgreSQL server is too old; ``version`` as 150004 for 15.4."""
    if version < OLDEST_POSTGRESQL:
        raise DatabaseVersion(
            f"PostgreSQL {version // 10000} is too old",
            url.shown,
            f"use {OLDEST_POSTGRESQL // 10000} or newer",
        )
