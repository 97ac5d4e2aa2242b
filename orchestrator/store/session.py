"""The two contexts in which SQL runs: ``read()`` and ``write()``; lost connections heal here."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, ResourceClosedError

from orchestrator.store.connect import WRITES, make_engine
from orchestrator.store.failures import translate
from orchestrator.store.url import Dialect, resolve_url

T = TypeVar("T")

_LEFT_TO_THE_PARENT: list[object] = []
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class Session:
    """Connections to one database. Safe to use from several threads; a forked child starts afresh.

    Attributes:
        url: opens the same database from any folder; holds the password.
        shown: for people, without the password.
        warnings: each one line, for the user.
    """

    def __init__(
        self, url: str, *, readonly: bool = False, patience_s: float = 30.0, shown: str | None = None
    ) -> None:
        self.where = resolve_url(url)
        self.url: str = self.where.text
        self.dialect: Dialect = self.where.dialect
        self.shown = shown or self.where.shown
        self.readonly = readonly
        self.patience_s = patience_s
        self.warnings: list[str] = []
        self.engine: Engine = make_engine(self.where, readonly=readonly)
        _forget_in_children(self.engine)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in a transaction that takes no write lock.

        Raises:
            DatabaseError: what the driver said, by kind.
        """
        try:
            with self.engine.connect() as connection, connection.begin():
                yield connection
        except DBAPIError as e:
            raise translate(e, self.shown)[0] from e

    def read(self, work: Callable[[Connection], T], patience_s: float | None = None) -> T:
        """``work`` in a reading transaction; tried again while the server is away."""
        return self._try(lambda: self._run(work, writes=False), patience_s)

    def write(self, work: Callable[[Connection], T], patience_s: float | None = None) -> T:
        """``work`` in a writing transaction, all or nothing.

        It is run again, up to ``patience_s`` (None: the store's), after a lost connection or a lock that
        another writer held; so ``work`` must be safe to repeat even if its first commit went through.

        Raises:
            DatabaseError: what the driver said, by kind.
        """
        return self._try(lambda: self._run(work, writes=True), patience_s)

    def _run(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        with self.engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: writes})
            with connection.begin():
                return work(connection)

    def _try(self, attempt: Callable[[], T], patience_s: float | None) -> T:
        deadline = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except Exception as e:
                # A COPY speaks to the driver itself, so its errors come unwrapped.
                if not isinstance(e, (DBAPIError, ResourceClosedError)) and not _of_driver(e):
                    raise
                error, passing = translate(e, self.shown)
                if not passing or time.monotonic() + pause_s > deadline:
                    raise error from e
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _of_driver(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("psycopg", "sqlite3")


def _forget_in_children(engine: Engine) -> None:
    """A connection must not be used on both sides of a fork."""
    reference = weakref.ref(engine)

    def forget() -> None:
        if (alive := reference()) is not None:
            # SQLite must not even close it here: that would drop locks and files of the parent's.
            _LEFT_TO_THE_PARENT.append(alive.pool)
            alive.dispose(close=False)

    os.register_at_fork(after_in_child=forget)
