"""Which sweep is meant by ``SWEEP``, ``DB#SWEEP`` or ``DB``?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.compare import Side
from orchestrator.errors import SpecError
from orchestrator.store import queries_stats
from orchestrator.store.queries_report import Reads
from orchestrator.store.url import without_passwords

Opener = Callable[[str], AbstractContextManager[Reads]]


@dataclass(frozen=True, slots=True)
class SideName:
    """A database and a sweep in it; ``sweep`` None = the one that was run last."""

    database: str
    sweep: str | None
    text: str


def parse_side(text: str, default_database: str) -> SideName:
    """``DB#SWEEP``, ``DB#``, ``DB`` (a URL, or a file that is there) or ``SWEEP`` in the default database.

    Before ``#`` the ending ``.db`` of a file may be left out.

    Raises:
        SpecError: the text is empty.
    """
    database, mark, sweep = text.rpartition("#")
    if mark and database:
        return SideName(_with_ending(database), sweep or None, text)
    name = sweep if mark else text
    if not name:
        raise SpecError("a side of the comparison is empty", fix="name a sweep, DB#SWEEP or a database file")
    if "://" in name or Path(name).is_file():
        return SideName(name, None, text)
    return SideName(default_database, name, text)


def _with_ending(database: str) -> str:
    """``last-month`` is ``last-month.db`` where there is only that."""
    ended = f"{database}.db"
    is_ended = "://" in database or Path(database).exists() or not Path(ended).is_file()
    return database if is_ended else ended


def read_side(name: SideName, open_database: Opener) -> Side:
    """The jobs and stacks of one side.

    Raises:
        SpecError: the database holds no such sweep.
        DatabaseError: it cannot be read.
    """
    with open_database(name.database) as store:
        sweep = store.sweep(name.sweep)
        shown = name.text if name.sweep else f"{name.text.rstrip('#')}#{sweep.name}"
        return Side(
            without_passwords(shown),
            queries_stats.sweep_jobs(store, sweep.sweep_id),
            queries_stats.sweep_environments(store, sweep.sweep_id),
        )


@contextmanager
def read_only(database: str) -> Iterator[Reads]:
    """The database, opened for reading."""
    from orchestrator.store.opening import open_store

    store = open_store(database, readonly=True)
    try:
        yield store
    finally:
        store.close()
