"""Takes another database, or the log of DeepSpeed's example, into a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.store.examplelog import axis_values, log_as_store
from orchestrator.store.opening import open_store
from orchestrator.store.store import Store
from orchestrator.store.transfer import Transfer, transfer
from orchestrator.store.url import resolve_url


def import_into(
    target: Store,
    source: str,
    names: Sequence[str] = (),
    *,
    samples: bool = True,
    name: str | None = None,
    known: Sequence[str] = (),
) -> Transfer:
    """Copy sweeps of ``source``, a database or an ``offload_states.log``, into ``target``.

    Args:
        names: sweeps of a database; none = all.
        name: a log: the sweep it becomes; None = the name of the file.
        known: a log: ``axis=value`` of what it does not say.
    """
    found = resolve_url(source)
    if found.text == target.url:
        raise OrchError("that is the database itself", source)
    if found.path is not None and _is_log(found.path):
        with log_as_store(found.path, name or found.path.stem, axis_values(known)) as log:
            return transfer(log, target)
    if name or known:
        raise OrchError("--name and --set are for an offload_states.log", source)
    with open_store(source, readonly=True) as other:
        return transfer(other, target, names, samples=samples)


def _is_log(path: Path) -> bool:
    """A file that is there and is no SQLite file."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return bool(head) and not head.startswith(b"SQLite format 3\x00") and b"\x00" not in head
