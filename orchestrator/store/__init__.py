"""The results database: the only code that knows SQL.

The names below are imported when they are used, so that ``orchestrator.store.status`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.store.opening import open_store as open_store
    from orchestrator.store.owner import owner_is_alive as owner_is_alive
    from orchestrator.store.owner import this_owner as this_owner
    from orchestrator.store.rows import AttemptRow as AttemptRow
    from orchestrator.store.rows import JobRow as JobRow
    from orchestrator.store.rows import NewAttempt as NewAttempt
    from orchestrator.store.status import FailureKind as FailureKind
    from orchestrator.store.status import JobStatus as JobStatus
    from orchestrator.store.status import Verdict as Verdict
    from orchestrator.store.store import Store as Store

_HOMES = {
    "AttemptRow": "rows",
    "FailureKind": "status",
    "JobRow": "rows",
    "JobStatus": "status",
    "NewAttempt": "rows",
    "Store": "store",
    "Verdict": "status",
    "open_store": "opening",
    "owner_is_alive": "owner",
    "this_owner": "owner",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
