"""``orch repro``."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.completion import complete_job
from orchestrator.cli.options import db_option, output_option


@click.command("repro")
@click.argument("job", shell_complete=complete_job)
@click.option("--sweep", help="The sweep of a job given as CELL or CELL/REPEAT; else the latest one.")
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
    from orchestrator.launch.repro import ran_on, reproduce
    from orchestrator.render.files import write_text
    from orchestrator.store import open_store

    with open_store(db, readonly=True) as store:
        if sweep is not None:
            store.sweep(sweep)  # says which there are
        row = store.find_job(job, sweep)
        attempts = store.attempts(row.job_id)
    script = reproduce(row.cell_values, row.label, accelerator or ran_on(attempts)).as_shell()
    write_text(script, output)
