"""``orch logs JOB``."""

from __future__ import annotations

import sys

import click

from orchestrator.cli.job import chosen_job, job_argument
from orchestrator.cli.options import db_option, no_color_option


@click.command(name="logs")
@job_argument
@db_option
@click.option("--rank", type=click.IntRange(min=0), help="This rank's log alone.")
@click.option("--attempt", type=click.IntRange(min=1), help="Of this attempt; default: the last.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="The last N lines of each log.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the attempt has ended.")
@click.option("--raw", is_flag=True, help="Everything, also the warnings that help nobody.")
@no_color_option
def command(
    job: str,
    sweep: str | None,
    db: str,
    rank: int | None,
    attempt: int | None,
    tail: int | None,
    follow: bool,
    raw: bool,
) -> None:
    """Print a job's log: what its ranks wrote, as they wrote it, without the known noise.

    Left out and counted are what torch and DeepSpeed announce to their own developers (FutureWarning,
    DeprecationWarning) and warnings that were shown before; never an error.

    JOB is a job id, the start of a uid, CELL or CELL/REPEAT. The logs stay where the job ran; on another
    host this says where to look.
    """
    from orchestrator.analysis import logfiles
    from orchestrator.render.logs import LogWriter
    from orchestrator.store import open_store
    from orchestrator.store import queries_status as queries

    with open_store(db, readonly=True) as store:
        job_id = chosen_job(store, job, sweep).job_id
        chosen = logfiles.choose_attempt(queries.attempts(store, job_id), attempt, job)
        logs = logfiles.log_files(chosen, rank)
        writer = LogWriter(sys.stdout.buffer, raw=raw)
        read = writer.write(logs, tail=tail, is_whole=not follow)
        if follow:
            uid = str(chosen["uid"])
            pieces = logfiles.follow(read, lambda: queries.attempt_has_ended(store, uid))
            writer.follow(pieces, several=len(logs) > 1)
    if left_out := writer.left_out():
        click.echo(f"orch: {left_out}; --raw shows everything", err=True)
