"""What ``orch sweep`` says when it is over: one line, the report, what to do next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orchestrator.engines.outcome import SweepOutcome


def show_end(outcome: SweepOutcome, db_url: str, *, report: bool = True) -> None:
    """The outcome on stderr, the report on stdout, hints on a terminal."""
    for line in outcome.lines():
        click.echo(line, err=True)
    if outcome.interrupted or not report:
        return
    from orchestrator.render.terminal import is_terminal

    print_report(outcome.sweep, db_url)
    if is_terminal(sys.stdout):
        click.echo(
            "next: orch report --format html -o report.html"
            ' · orch sql "select * from job_summary" · orch status',
            err=True,
        )


def print_report(sweep: str, db_url: str) -> None:
    """The report table of the sweep on stdout, as ``orch report`` prints it, but never through the pager.

    Nobody may be there to leave a pager when a sweep of hours is over.
    """
    from orchestrator.analysis.report import ReportRequest, build_report
    from orchestrator.render.report import Style, write_summaries
    from orchestrator.store.opening import open_store

    with open_store(db_url, readonly=True) as store:
        write_summaries(build_report(store, ReportRequest(sweep)), Style("table"), sys.stdout)
