"""What the shell offers for a sweep or a job: names out of the database, read when Tab is pressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from orchestrator.cli.options import DEFAULT_DB

if TYPE_CHECKING:
    from orchestrator.store import Store

_MOST = 500


def complete_sweep(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the sweeps in the database."""
    return _offer(ctx, incomplete, lambda store: store.sweep_names())


def complete_job(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """CELL/REPEAT of the jobs of the sweep named by ``--sweep``, else of the latest one."""
    return _offer(ctx, incomplete, lambda store: _labels(store, ctx.params.get("sweep")))


def _labels(store: Store, sweep: str | None) -> list[str]:
    return [job.label for job in store.jobs(store.sweep(sweep).sweep_id)[:_MOST]]


def _offer(
    ctx: click.Context, incomplete: str, names_of: Callable[[Store], list[str]]
) -> list[CompletionItem]:
    from orchestrator.errors import OrchError
    from orchestrator.store import open_store

    try:
        with open_store(ctx.params.get("db") or DEFAULT_DB, readonly=True, patience_s=0.0) as store:
            names = names_of(store)
    except OrchError:
        return []  # no database: nothing to offer, and Tab must not print an error
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
