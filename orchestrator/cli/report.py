"""``orch report [SWEEP]``."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.completion import complete_sweep
from orchestrator.cli.options import db_option, format_options, no_color_option, output_option


@click.command(name="report")
@click.argument("sweep", shell_complete=complete_sweep, required=False)
@db_option
@click.option(
    "--per",
    type=click.Choice(["cell", "job", "iteration"]),
    help="A row a what; default: cell for people, job for programs.",
)
@click.option("--by", multiple=True, metavar="AXIS,…", help="Group by these axes instead of by cell.")
@click.option("--metric", multiple=True, metavar="NAME,…", help="Columns of job_summary to show.")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only jobs with axis=value, axis>=4096, ...; repeat it: all must hold.",
)
@click.option(
    "--layout",
    type=click.Choice(["cells", "example"]),
    default="cells",
    show_default=True,
    help="example: the trial table of DeepSpeed's example.",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write plots for a paper (SVG and PNG) into this folder.",
)
@click.option("--wide", is_flag=True, help="Every column, however narrow the terminal.")
@format_options("table", "markdown", "csv", "json", "html", "parquet")
@output_option
@no_color_option
def command(
    sweep: str | None, db: str, per: str | None, by: tuple[str, ...], metric: tuple[str, ...],
    where: tuple[str, ...], layout: str, plots: Path | None, wide: bool, output_format: str,
    output: Path | None,
) -> None:  # fmt: skip
    """Show what was measured: the best setting, a table, what to know, what failed and why.

    SWEEP defaults to the one that was run last. Table and markdown have a row a cell, its repeats combined
    (median of the jobs' medians, min–max); CSV, JSON and Parquet a row a job with exact numbers.
    """
    from orchestrator.analysis.report import ReportRequest
    from orchestrator.render.output import deliver
    from orchestrator.store import open_store

    request = ReportRequest(sweep, by, metric, where)
    with open_store(db, readonly=True) as store:
        deliver(
            store,
            request,
            per=per,
            layout=layout,
            format=output_format,
            output=output,
            plots=plots,
            wide=wide,
        )
