"""``orch cancel``: stop a sweep from elsewhere."""

from __future__ import annotations

import click

from orchestrator.cli.completion import complete_sweep
from orchestrator.cli.options import db_option, no_color_option


@click.command("cancel")
@click.argument("sweep", shell_complete=complete_sweep)
@db_option
@no_color_option
def command(sweep: str, db: str) -> None:
    """Ask the orch that runs SWEEP, wherever it is, to stop its running jobs and leave.

    The jobs end as cancelled within about a second and the grace; the next "orch sweep" continues.
    """
    from orchestrator.store.opening import open_store
    from orchestrator.store.queries_status import runner

    with open_store(db) as store:
        owner = runner(store, store.request_cancel(sweep))
    who = f"the orch that runs it ({owner}) stops its jobs and leaves" if owner else "no orch runs it now"
    click.echo(f"sweep {sweep}: asked to stop; {who}")
