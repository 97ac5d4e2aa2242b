"""What went wrong in the driver, as an error of orch's own tree, and is it worth another try?"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, IntegrityError

from orchestrator.errors import (
    DatabaseError,
    DatabaseFull,
    DatabaseIntegrity,
    DatabaseLocked,
    DatabaseUnreachable,
)

_STARTING = ("57P01", "57P02", "57P03", "08")
_CONFLICT = ("40001", "40P01", "55P03", "25006")
"""Serialisation failure, deadlock, lock timeout; 25006: a standby that is about to be promoted."""


def translate(error: BaseException, shown: str) -> tuple[DatabaseError, bool]:
    """The error to raise, and whether the same write may succeed a little later."""
    cause = getattr(error, "orig", None) or error
    text = one_line(cause)
    if hasattr(cause, "sqlite_errorname") or type(cause).__module__.startswith("sqlite3"):
        return _sqlite(cause, text, shown)
    if isinstance(error, DBAPIError) or type(cause).__module__.startswith("psycopg"):
        return _postgresql(error, cause, text, shown)
    return DatabaseError(text, shown), False


def one_line(error: BaseException) -> str:
    """The first line of the message, without the driver's advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def _sqlite(cause: BaseException, text: str, shown: str) -> tuple[DatabaseError, bool]:
    name = getattr(cause, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in text:
        return DatabaseLocked(
            "another program kept it locked for 30 s", shown, "find who holds it: fuser " + shown
        ), True
    if name.startswith("SQLITE_FULL"):
        return DatabaseFull("the disk is full", shown, "free space, then run the same command again"), False
    if name.startswith("SQLITE_IOERR"):
        return DatabaseFull(
            f"it cannot be written ({text})", shown, "look at space, quota and file size limit"
        ), False
    if name.startswith("SQLITE_READONLY"):
        return DatabaseFull(
            "it is read-only", shown, "look at the permissions of the file and its folder"
        ), False
    if name.startswith("SQLITE_CONSTRAINT"):
        return DatabaseIntegrity(text, shown), False
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return DatabaseError(
            f"it is damaged ({text})", shown, "restore a backup, or sqlite3 FILE .recover"
        ), False
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return DatabaseUnreachable(f"it cannot be opened ({text})", shown), False
    return DatabaseError(text, shown), False


def _postgresql(
    error: BaseException, cause: BaseException, text: str, shown: str
) -> tuple[DatabaseError, bool]:
    state = getattr(cause, "sqlstate", None) or ""
    if isinstance(error, IntegrityError) or state.startswith("23"):
        return DatabaseIntegrity(text, shown), False
    if state.startswith("53"):
        return DatabaseFull(text, shown, "free space or connections on the server"), state == "53300"
    if state.startswith(_CONFLICT):
        return DatabaseLocked(text, shown), True
    if state in ("28P01", "28000") or "authentication failed" in text or "no password supplied" in text:
        return DatabaseUnreachable("wrong user or password", shown, f"the server says: {_fatal(text)}"), False
    if state == "3D000" or ("database" in text and "does not exist" in text):
        return DatabaseUnreachable(_fatal(text), shown, "make it: createdb NAME"), False
    if state.startswith(_STARTING) or getattr(error, "connection_invalidated", False) or not state:
        return DatabaseUnreachable(f"no answer from the server ({_fatal(text)})", shown), True
    return DatabaseError(text, shown), False


def _fatal(text: str) -> str:
    """The server's own words, without the tale of the connection."""
    return text.rpartition("FATAL:")[2].strip() if "FATAL:" in text else text
