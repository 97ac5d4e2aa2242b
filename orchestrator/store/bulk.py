"""Many rows at once: by executemany on SQLite, by COPY on PostgreSQL; rows that are there stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, func
from sqlalchemy.dialects import postgresql, sqlite

COPY_FROM_ROWS = 200
"""From here on a temporary table and COPY are cheaper than one INSERT with many values."""


def insert_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """Insert the rows whose key is not there yet; returns how many were new."""
    if connection.dialect.name == "postgresql" and len(rows) >= COPY_FROM_ROWS:
        return copy_new(
            connection, table, [c.name for c in table.c], ([r.get(c.name) for c in table.c] for r in rows)
        )
    names = [column.name for column in table.c]
    full = [{name: row.get(name) for name in names} for row in rows]
    result = connection.execute(
        _insert(connection.dialect.name, table), full, execution_options={"preserve_rowcount": True}
    )
    return int(result.rowcount)


def copy_new(
    connection: Connection, table: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """PostgreSQL only: COPY into a temporary table, then insert what is new."""
    cursor = connection.connection.cursor()
    quoted = ", ".join(f'"{name}"' for name in names)
    target, temporary = f'"{table.name}"', f'"new_{table.name}"'
    try:
        cursor.execute(f"CREATE TEMPORARY TABLE {temporary} (LIKE {target}) ON COMMIT DROP")
        with cursor.copy(f"COPY {temporary} ({quoted}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        cursor.execute(
            f"INSERT INTO {target} ({quoted}) SELECT {quoted} FROM {temporary} ON CONFLICT DO NOTHING"
        )
        inserted = int(cursor.rowcount)
        cursor.execute(f"DROP TABLE {temporary}")
    finally:
        cursor.close()
    return inserted


def upsert_known(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows, or set in the row that is there whatever the new one knows (is not NULL)."""
    names = tuple(column.name for column in table.c)
    full = [{name: row.get(name) for name in names} for row in rows]
    connection.execute(_upsert(connection.dialect.name, table), full)


def replace(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert the rows, each in the place of the one with its key if there is one."""
    connection.execute(_replace(connection.dialect.name, table), rows)


@cache
def _insert(dialect: str, table: Table) -> Any:
    return _DIALECTS[dialect](table).on_conflict_do_nothing()


@cache
def _upsert(dialect: str, table: Table) -> Any:
    statement = _DIALECTS[dialect](table)
    keys = [column.name for column in table.primary_key]
    known = {c.name: func.coalesce(statement.excluded[c.name], c) for c in table.c if c.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=known)


@cache
def _replace(dialect: str, table: Table) -> Any:
    statement = _DIALECTS[dialect](table)
    keys = [column.name for column in table.primary_key]
    values = {c.name: statement.excluded[c.name] for c in table.c if c.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=values)


_DIALECTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
