"""``orch repro``."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.job import chosen_job, job_argument
from orchestrator.cli.options import db_option, output_option


@click.command("repro")
@job_argument
@click.option(
    "--accelerator",
    type=click.Choice(["cuda", "cpu"]),
    help="Run it on this instead of what the job ran on.",
)
@db_option
@output_option
def command(job: str, sweep: str | None, accelerator: str | None, db: str, output: Path | None) -> None:
    """Print a shell script that runs JOB without orch, from a DeepSpeed config and a small program.

    It needs torch and deepspeed alone, so that it can go into a bug report: orch repro JOB | sh
    """
    from orchestrator.errors import OrchError
    from orchestrator.launch.repro import ran_on, reproduce, untold
    from orchestrator.render.files import write_text
    from orchestrator.store import open_store

    with open_store(db, readonly=True) as store:
        row = chosen_job(store, job, sweep)
        attempts = store.attempts(row.job_id)
    if missing := untold(row.cell_values, attempts):
        what = f"job {job} was imported from a log that does not tell its {', '.join(missing)}"
        raise OrchError(what, "", "tell it: orch db import LOG --name NAME --set AXIS=VALUE, for each")
    script = reproduce(row.cell_values, row.label, accelerator or ran_on(attempts)).as_shell()
    write_text(script, output)
