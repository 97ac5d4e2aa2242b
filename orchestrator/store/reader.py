"""Free reading: a user's own SQL, and frames for reports."""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Mapping
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
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_CURSOR_WORDS = frozenset({"select", "with", "values", "table"})
_OTHER_WORDS = frozenset({"explain", "show"})


def run_sql(connection: Connection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one statement that cannot change anything.

    Raises:
        OrchError: the statement is wrong, or is not a query.
    """
    bare = query.strip().rstrip(";").strip()
    if not bare:
        raise OrchError("the query is empty", "SQL", 'for example: orch sql "SELECT * FROM job_summary"')
    if connection.dialect.name == "postgresql":
        return _of_postgresql(connection, bare)
    driver: Any = connection.connection.driver_connection
    driver.set_authorizer(_authorize)
    try:
        return _of_sqlite(connection, bare)
    finally:
        driver.set_authorizer(None)


def _of_sqlite(connection: Connection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    try:
        result = connection.exec_driver_sql(query)
        if not result.returns_rows:
            raise _no_query()
        return list(result.keys()), [tuple(row) for row in result]
    except DBAPIError as e:
        raise _sql_error(e.orig) from e
    except (sqlite3.Warning, sqlite3.ProgrammingError) as e:
        raise OrchError(f"{e}", "SQL") from e


def _of_postgresql(connection: Connection, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """A read-only transaction alone does not do: a statement behind a semicolon could end it, COPY writes
    files. A cursor can be declared for one SELECT only, and a prepared statement is one."""
    import psycopg

    found = _FIRST_WORD.match(query)
    word = found[1].lower() if found else ""
    if word not in _CURSOR_WORDS | _OTHER_WORDS:
        raise _no_query()
    connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    driver: Any = connection.connection.driver_connection
    try:
        if word in _CURSOR_WORDS:
            with driver.cursor(name="orch_sql") as cursor:
                cursor.execute(query)
                return [column.name for column in cursor.description], cursor.fetchall()
        with driver.cursor() as cursor:
            cursor.execute(query, prepare=True)
            return [column.name for column in cursor.description], cursor.fetchall()
    except psycopg.Error as e:
        raise _sql_error(e) from e


def _no_query() -> OrchError:
    return OrchError("that is not a query: it gives no rows", "SQL", "orch sql only reads")


def _sql_error(error: BaseException | None) -> OrchError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = lines[0] if lines else "the query failed"
    if any(words in what for words in _WRITES):
        return OrchError("orch sql only reads", "SQL", "use sqlite3 or psql to change a database by hand")
    if "multiple commands" in what:
        return OrchError("more than one statement", "SQL", "give one at a time")
    return OrchError(what, "SQL", _meant(what) or "the tables are described in docs/database.md")


_WRITES = ("not authorized", "read-only transaction", "readonly database", "data-modifying statements")
# SQLite's words, and PostgreSQL's.
_UNKNOWN = re.compile(
    r'no such (column|table): (?:\w+\.)?"?(\w+)|(column|relation) "?(?:\w+\.)?(\w+)"? does not'
)
_RELATION = re.compile(r"CREATE (?:TABLE|VIEW) (\w+)")


def _meant(what: str) -> str:
    """``did you mean x?`` for a table or column that is not there; empty where none is near."""
    found = _UNKNOWN.search(what)
    if found is None:
        return ""
    schema = "\n".join(statements(schema_sql()))
    is_column = (found[1] or found[3]) == "column"
    words = r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]{3,}"
    names = set(re.findall(words, schema) if is_column else _RELATION.findall(schema))
    near = difflib.get_close_matches((found[2] or found[4]).lower(), sorted(names), 3)
    return f"did you mean {', '.join(near)}?" if near else ""


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
