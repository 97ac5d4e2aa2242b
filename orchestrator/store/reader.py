"""Free reading: a user's own SQL, and frames for reports."""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import OrchError
from orchestrator.store.schema import schema_sql, statements

if TYPE_CHECKING:
    import pandas

_ALLOWED = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        getattr(sqlite3, "SQLITE_RECURSIVE", 33),
    }
)
_PRAGMAS = frozenset(
    "table_info table_xinfo table_list index_list index_info foreign_key_list database_list".split()
)
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension"})


def run_sql(connection: Connection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one statement that cannot change anything.

    Raises:
        OrchError: the statement is wrong, or is not a query.
    """
    with _nothing_but_reading(connection):
        try:
            result = connection.exec_driver_sql(_for_driver(connection, _bare(query)))
        except DBAPIError as e:
            raise _sql_error(e) from e
        except (sqlite3.Warning, sqlite3.ProgrammingError) as e:
            raise OrchError(f"{e}", "SQL") from e
        if not result.returns_rows:
            raise OrchError("that is not a query: it gives no rows", "SQL", "orch sql only reads")
        try:
            return list(result.keys()), [tuple(row) for row in result]
        except DBAPIError as e:
            raise _sql_error(e) from e


def _bare(query: str) -> str:
    bare = query.strip().rstrip(";").strip()
    if not bare:
        raise OrchError("the query is empty", "SQL", 'for example: orch sql "SELECT * FROM job_summary"')
    return bare


def _for_driver(connection: Connection, query: str) -> str:
    """psycopg looks for placeholders; without any it would also allow several statements."""
    return query.replace("%", "%%") if connection.dialect.name == "postgresql" else query


def _sql_error(error: DBAPIError) -> OrchError:
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    what = lines[0] if lines else "the query failed"
    if "not authorized" in what or "read-only transaction" in what or "readonly database" in what:
        return OrchError("orch sql only reads", "SQL", "use sqlite3 or psql to change a database by hand")
    return OrchError(what, "SQL", _meant(what) or "the tables are described in docs/database.md")


# SQLite's words, and PostgreSQL's.
_UNKNOWN = re.compile(
    r'no such (?:column|table): (?:\w+\.)?"?(\w+)|(?:column|relation) "?(?:\w+\.)?(\w+)"? does not'
)


def _meant(what: str) -> str:
    """``did you mean x?`` for a table or column that is not there; empty where none is near."""
    found = _UNKNOWN.search(what)
    if found is None:
        return ""
    names = set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]{3,}", "\n".join(statements(schema_sql()))))
    near = difflib.get_close_matches((found[1] or found[2]).lower(), sorted(names), 3)
    return f"did you mean {', '.join(near)}?" if near else ""


@contextmanager
def _nothing_but_reading(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        yield
        return
    driver: Any = connection.connection.driver_connection
    driver.set_authorizer(_authorize)
    try:
        yield
    finally:
        driver.set_authorizer(None)


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    if action in _ALLOWED and second not in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def read_frame(
    connection: Connection, query: str, parameters: Mapping[str, object] | None = None
) -> pandas.DataFrame:
    """A query of orch's own as a DataFrame; values are bound by ``:name``."""
    import pandas

    result = connection.execute(text(query), dict(parameters or {}))
    return pandas.DataFrame([tuple(row) for row in result], columns=list(result.keys()))
