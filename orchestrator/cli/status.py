"""``orch status [SWEEP]``."""

from __future__ import annotations

import sys

import click

from orchestrator.cli.completion import complete_sweep
from orchestrator.cli.options import db_option, format_options, no_color_option


@click.command(name="status")
@click.argument("sweep", shell_complete=complete_sweep, required=False)
@db_option
@format_options("table", "json")
@no_color_option
def command(sweep: str | None, db: str, output_format: str) -> None:
    """Show where a sweep stands: jobs by status, what runs now, what went wrong.

    SWEEP defaults to the one that was run last. --json prints {"sweep": NAME, "counts": {STATUS: N}}.
    """
    from orchestrator.analysis.standing import standing
    from orchestrator.render.standing import write_standing
    from orchestrator.store import open_store

    with open_store(db, readonly=True) as store:
        found = standing(store, sweep)
    write_standing(found, sys.stdout, as_json=output_format == "json")
