"""Which job does ``JOB`` mean? The argument and ``--sweep`` of the commands that are about one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.completion import complete_job, complete_sweep
from orchestrator.cli.options import Command

if TYPE_CHECKING:
    from orchestrator.store import Store
    from orchestrator.store.rows import JobRow

_MOST = 5


def job_argument(command: Command) -> Command:
    """``JOB`` and ``--sweep``, passed as ``job`` and ``sweep``."""
    with_sweep = click.option(
        "--sweep",
        metavar="NAME",
        shell_complete=complete_sweep,
        help="The sweep of a job given as CELL or CELL/REPEAT; else the latest one that has it.",
    )(command)
    return click.argument("job", shell_complete=complete_job)(with_sweep)


def chosen_job(store: Store, text: str, sweep: str | None) -> JobRow:
    """The job that is meant; says on stderr which sweep it was taken from if others have such a job, too.

    Raises:
        OrchError: no such sweep, no job, or more than one, is meant.
    """
    from orchestrator.render.values import visible

    if sweep is not None:
        store.sweep(sweep)  # says which there are
    found = store.find_job(text, sweep)
    if found.also_in:
        more = f" and {len(found.also_in) - _MOST} more" if len(found.also_in) > _MOST else ""
        others = ", ".join(map(visible, found.also_in[:_MOST]))
        have = "has" if len(found.also_in) == 1 else "have"
        click.echo(
            f"orch: {text} of sweep {visible(found.sweep)}, the latest; {others}{more} {have} it too:"
            f" --sweep {visible(found.also_in[0])}",
            err=True,
        )
    return found
