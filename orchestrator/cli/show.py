"""``orch show JOB``."""

from __future__ import annotations

import sys

import click

from orchestrator.cli.job import chosen_job, job_argument
from orchestrator.cli.options import db_option, format_options, no_color_option


@click.command(name="show")
@job_argument
@db_option
@format_options("table", "json")
@no_color_option
def command(job: str, sweep: str | None, db: str, output_format: str) -> None:
    """Tell one job's whole story: parameters, attempts, events, figures, environment, files.

    JOB is a job id, the start of a uid, CELL or CELL/REPEAT, as other commands print them.
    """
    from orchestrator.analysis.story import story
    from orchestrator.render.story import write_story
    from orchestrator.render.terminal import paged
    from orchestrator.store import open_store

    with open_store(db, readonly=True) as store:
        told = story(store, chosen_job(store, job, sweep).job_id)
    with paged(sys.stdout) as out:
        write_story(told, out, as_json=output_format == "json")
