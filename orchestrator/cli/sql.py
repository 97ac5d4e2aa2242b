"""``orch sql QUERY``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from orchestrator.cli.options import db_option, format_options, no_color_option, output_option


@click.command(name="sql")
@click.argument("query")
@db_option
@format_options("table", "markdown", "csv", "json", "parquet")
@output_option
@no_color_option
def command(query: str, db: str, output_format: str, output: Path | None) -> None:
    """Run one read-only query, for example "SELECT * FROM job_summary".

    QUERY may be - to read it from standard input. Tables and views: docs/database.md, docs/queries.md.
    """
    from orchestrator.render.formats import render_rows
    from orchestrator.render.output import opened
    from orchestrator.store import open_store

    text = sys.stdin.read() if query == "-" else query
    with open_store(db, readonly=True) as store:
        columns, rows = store.sql(text)
    with opened(output, output_format) as out:
        render_rows(columns, rows, format=output_format, out=out, humanise=False)
