"""``orch doctor``."""

from __future__ import annotations

import sys

import click

from orchestrator.cli.options import db_option, format_options, no_color_option


@click.command("doctor")
@db_option
@format_options("table", "json")
@no_color_option
@click.option("--probe", is_flag=True, help="Measure the link to every device too (needs torch).")
@click.option("--brief", is_flag=True, help="One line in all.")
@click.option("--verbose", is_flag=True, help="Show the evidence of what is ok as well.")
@click.option("--fix", type=click.Choice(["stale-lock", "leftovers"]), help="Mend this first.")
def command(db: str, output_format: str, probe: bool, brief: bool, verbose: bool, fix: str | None) -> int:
    """Say what is wrong with this host, and the command that mends it.

    Devices, driver, link, versions, compiler, op build, stale locks, leftovers in shared memory, memory
    limits, ports, NUMA, disk and database. Exit status 1 if something is an error.
    """
    from orchestrator.doctor.examine import Fix, examine, mend, worst
    from orchestrator.doctor.finding import Settings
    from orchestrator.render.findings import render_brief, render_findings

    settings = Settings(db)
    for line in mend(Fix(fix), settings) if fix else ():
        click.echo(line, err=True)
    findings = examine(settings, probe=probe)
    if brief and output_format == "table":
        render_brief(findings, out=sys.stdout)
    else:
        render_findings(findings, format=output_format, out=sys.stdout, verbose=verbose)
    return 1 if worst(findings) == "error" else 0
