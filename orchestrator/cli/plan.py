"""``orch plan SPEC``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import db_option, format_options, no_color_option

if TYPE_CHECKING:
    from orchestrator.spec.plan import Plan


@click.command("plan")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--name", help="The sweep's name, instead of the file's.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Replace an axis everywhere; a list becomes a matrix axis. May be repeated.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Refuse a sweep of more jobs before it is expanded.",
)
@db_option
@format_options("table", "json")
@no_color_option
def command(
    spec: Path, name: str | None, overrides: tuple[str, ...], max_jobs: int, db: str, output_format: str
) -> None:
    """Show the jobs of the sweep file SPEC; start and write nothing.

    SPEC is a file or the name of a sweep that comes with orch. The table has a row a cell: what differs
    between cells, the predicted bytes, whether it fits this host. The database is only looked at, for
    how long such cells took.
    """
    from orchestrator.spec.load import load_plan

    plan = load_plan(spec, overrides=overrides, max_jobs=max_jobs, name=name)
    if plan.path != str(spec):
        click.echo(f"reading {plan.path}", err=True)
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)
    if output_format == "json":
        from orchestrator.render.plan import write_plan_json

        write_plan_json(plan, sys.stdout)
        return
    from orchestrator.engines.forecast import forecast
    from orchestrator.render.plan import write_plan
    from orchestrator.store.url import without_passwords

    foretold = forecast(plan)
    write_plan(
        plan,
        foretold,
        sys.stdout,
        duration=_expected(db, foretold.admitted(plan)),
        run_line=without_passwords(shlex.join(["orch", "sweep", *sys.argv[2:]])),
    )


def _expected(db: str, plan: Plan) -> str | None:
    """The time expected, in words; None without a database or a measured cell in it."""
    from orchestrator.analysis.expect import expected_seconds
    from orchestrator.errors import DatabaseError
    from orchestrator.store import open_store

    try:
        with open_store(db, readonly=True) as store:
            expectation = expected_seconds(store, plan)
    except DatabaseError:
        return None
    return str(expectation) if expectation else None
