"""Which database is meant? A plain path, a ``sqlite:`` URL or a ``postgresql:`` URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from orchestrator.errors import DatabaseError

DEFAULT_URL = "sqlite:///orch.db"
Dialect = Literal["sqlite", "postgresql"]


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A database, resolved.

    Attributes:
        text: the URL; opening it again from any folder finds the same database.
        path: the SQLite file, absolute; None for PostgreSQL.
        shown: for people: the file as a path, the URL without its password.
    """

    text: str
    dialect: Dialect
    path: Path | None
    shown: str


def resolve_url(text: str | None = None, environ: Mapping[str, str] | None = None) -> DatabaseUrl:
    """The database that ``text``, else ``$ORCH_DB``, else the default names.

    Raises:
        DatabaseError: the URL is of a kind that orch does not know.
    """
    text = text or (os.environ if environ is None else environ).get("ORCH_DB") or DEFAULT_URL
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _sqlite(text.removeprefix("sqlite:"), text)
    scheme = scheme.lower().partition("+")[0]
    if scheme == "sqlite":
        if not rest.startswith("/"):
            raise DatabaseError("a SQLite URL has three slashes", text, "write sqlite:///FILE")
        return _sqlite(unquote(rest[1:]), text)
    if scheme in ("postgres", "postgresql"):
        return DatabaseUrl(f"postgresql://{rest}", "postgresql", None, f"postgresql://{_masked(rest)}")
    raise DatabaseError(
        f"'{scheme}' is not a database that orch knows",
        _masked(text),
        "use a file name, sqlite:///FILE or postgresql://user@host/name",
    )


def _sqlite(name: str, text: str) -> DatabaseUrl:
    if name in ("", ":memory:"):
        raise DatabaseError("a database in memory cannot be shared between processes", text, "name a file")
    path = Path(name).expanduser().absolute()
    return DatabaseUrl(f"sqlite:///{str(path).replace('%', '%25')}", "sqlite", path, name)


def without_passwords(text: str) -> str:
    """A line with PostgreSQL URLs in it, as it may be shown: each password as ``***``."""
    return re.sub(
        r"(\bpostgres(?:ql)?(?:\+\w+)?://)([^\s'\"]*)", lambda found: found[1] + _masked(found[2]), text
    )


def _masked(rest: str) -> str:
    """Without the password, wherever the URL holds it."""
    rest = re.sub(r"^([^/@]*?):[^/]*@", r"\1:***@", rest)
    return re.sub(r"(password=)[^&#]*", r"\1***", rest)
