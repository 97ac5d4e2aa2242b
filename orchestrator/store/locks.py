"""One orch a sweep: a lock that its holder's death frees at once."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from orchestrator.errors import DatabaseUnreachable, SweepRunning


class Held(Protocol):
    """A lock that is held."""

    def keep(self) -> bool:
        """Take it again if the server lost it; False if somebody else has it now."""


class _FileHeld:
    def keep(self) -> bool:
        return True


@contextmanager
def file_lock(database: Path, sweep_name: str, who: str) -> Iterator[Held]:
    """A ``flock`` beside the database file, named by the sweep. Raises SweepRunning if it is taken."""
    digest = hashlib.sha256(sweep_name.encode()).hexdigest()[:12]
    path = database.with_name(f"{database.name}.{digest}.lock")
    descriptor = _locked(path, sweep_name)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{who}\n".encode(), 0)
        yield _FileHeld()
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, sweep_name: str) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise DatabaseUnreachable(f"its folder cannot be written ({e.strerror})", str(path.parent)) from e
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file between our open and our lock.
            if _same(descriptor, path):
                return descriptor
        except BlockingIOError as e:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip()
            os.close(descriptor)
            raise running(sweep_name, holder) from e
        os.close(descriptor)


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def running(sweep_name: str, holder: str = "") -> SweepRunning:
    """The error for a sweep that somebody runs."""
    by = f" by {holder}" if holder else ""
    return SweepRunning(
        f"sweep {sweep_name} is being run already{by}",
        "",
        f"look: orch status {sweep_name}; stop it: orch cancel {sweep_name}",
    )


class _ServerHeld:
    """An advisory lock on a connection of its own: the server frees it when the connection ends."""

    def __init__(self, engine: Engine, key: int) -> None:
        self._engine, self._key = engine, key
        self._connection: Any = None

    def take(self) -> bool:
        self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return bool(
            self._connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}).scalar()
        )

    def keep(self) -> bool:
        try:
            self._connection.execute(text("SELECT 1"))
            return True
        except (DBAPIError, InvalidRequestError):
            self._connection.invalidate()
            return self.take()

    def release(self) -> None:
        if self._connection is not None:
            # Closing the session frees the lock even if the server cannot be asked any more.
            self._connection.invalidate()
            self._connection.close()


@contextmanager
def server_lock(engine: Engine, sweep_name: str, holder: str) -> Iterator[Held]:
    """PostgreSQL's advisory lock, named by the sweep. Raises SweepRunning if it is taken."""
    held = _ServerHeld(engine, _server_key(sweep_name))
    try:
        if not held.take():
            raise running(sweep_name, holder)
        yield held
    finally:
        held.release()


def _server_key(sweep_name: str) -> int:
    digest = hashlib.sha256(f"orch sweep {sweep_name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


_HOLDERS = text("""
SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CAST(classid AS bigint) = :high AND CAST(objid AS bigint) = :low
""")


def is_server_locked(connection: Connection, sweep_name: str) -> bool | None:
    """Whether somebody holds the sweep on PostgreSQL, without taking it; None where it is a file."""
    if connection.dialect.name != "postgresql":
        return None
    # The server shows a key of 64 bits as two unsigned halves.
    high, low = divmod(_server_key(sweep_name) % 2**64, 2**32)
    return bool(connection.execute(_HOLDERS, {"high": high, "low": low}).scalar())
