"""Takes another database, or the log of DeepSpeed's example, into a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.store.examplelog import axis_values, log_as_store
from orchestrator.store.opening import open_store
from orchestrator.store.store import Store
from orchestrator.store.transfer import Transfer, transfer
from orchestrator.store.url import resolve_url


def import_into(
    db: str | None,
    source: str,
    names: Sequence[str] = (),
    *,
    samples: bool = True,
    name: str | None = None,
    known: Sequence[str] = (),
) -> Transfer:
    """Copy sweeps of ``source``, a database or an ``offload_states.log``, into the database ``db``.

    ``db`` is made if it is not there, but not before the source is known to be good.

    Args:
        names: sweeps of a database; none = all.
        name: a log: the sweep it becomes; None = the name of the file.
        known: a log: ``axis=value`` of what it does not say.
    """
    with _source(source, name, known) as other:
        return copy_into(other, db, names, samples=samples)


def copy_into(source: Store, db: str | None, names: Sequence[str] = (), *, samples: bool = True) -> Transfer:
    """Copy the sweeps of those names (none given: all) into the database ``db``, made if it is not there."""
    if resolve_url(db).text == source.url:
        raise OrchError("that is the database itself", source.shown)
    for wanted in names:
        source.sweep(wanted)
    with open_store(db, create=True) as target:
        return transfer(source, target, names, samples=samples)


@contextmanager
def _source(source: str, name: str | None, known: Sequence[str]) -> Iterator[Store]:
    found = resolve_url(source)
    if found.path is not None and _is_log(found.path):
        with log_as_store(found.path, name or found.path.stem, axis_values(known)) as log:
            yield log
        return
    if name or known:
        raise OrchError("--name and --set are for an offload_states.log", source)
    with open_store(source, readonly=True) as other:
        yield other


def _is_log(path: Path) -> bool:
    """A file that is there and is no SQLite file."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return bool(head) and not head.startswith(b"SQLite format 3\x00") and b"\x00" not in head
