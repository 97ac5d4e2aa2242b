"""``orch sweep``: run a sweep, or continue the one of that name."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from orchestrator.cli.options import FiniteSeconds, SpecPath, db_option, no_color_option


def _engine_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(
        (
            click.option("--engine", type=click.Choice(["local", "slurm", "ray"]), help="Where jobs run."),
            click.option(
                "--engine-option",
                "engine_options",
                multiple=True,
                metavar="KEY=VALUE",
                help="An option of the engine, as under engine: in the sweep file; may be repeated.",
            ),
            click.option(
                "--launcher",
                type=click.Choice(["fork", "spawn", "deepspeed"]),
                help="How ranks become processes.",
            ),
            click.option(
                "--gpus", metavar="LIST", help="Devices of this host: indices or UUIDs, with commas."
            ),
            click.option("--slots", type=click.IntRange(min=1), help="Ranks at once on this host."),
        )
    ):
        command = option(command)
    return command


def _run_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(
        (
            click.option("--name", help="The sweep's name, instead of the file's."),
            click.option(
                "--set",
                "overrides",
                multiple=True,
                metavar="AXIS=VALUE",
                help="Replace an axis everywhere; may be repeated.",
            ),
            click.option(
                "--max-jobs",
                type=click.IntRange(min=1),
                default=10_000,
                show_default=True,
                help="Refuse a sweep of more jobs.",
            ),
            click.option(
                "--timeout",
                "timeout_s",
                type=FiniteSeconds(min=0, min_open=True),
                metavar="SECONDS",
                help="Wall clock of a job, instead of limits.timeout.",
            ),
            click.option("--retry-failed", is_flag=True, help="Run failed, timed out and oom jobs again."),
            click.option("--fail-fast", is_flag=True, help="Start nothing more after the first failure."),
            click.option("--no-probe", is_flag=True, help="Do not measure the link to the devices."),
            click.option(
                "-q",
                "--quiet",
                is_flag=True,
                help="No progress and no report; failures and the last line only.",
            ),
        )
    ):
        command = option(command)
    return command


@click.command("sweep")
@click.argument("spec", type=SpecPath())
@_run_options
@_engine_options
@db_option
@no_color_option
def command(
    spec: Path,
    name: str | None,
    overrides: tuple[str, ...],
    max_jobs: int,
    timeout_s: float | None,
    retry_failed: bool,
    fail_fast: bool,
    no_probe: bool,
    quiet: bool,
    engine: str | None,
    engine_options: tuple[str, ...],
    launcher: str | None,
    gpus: str | None,
    slots: int | None,
    db: str,
) -> int:
    """Run the sweep file SPEC, or continue the sweep of its name where it stopped."""
    from orchestrator.cli.progress import make_view
    from orchestrator.cli.sweep_end import show_end
    from orchestrator.engines.choose import EngineChoice
    from orchestrator.engines.launch_sweep import SweepRequest, launch_sweep

    request = SweepRequest(
        spec=spec,
        name=name,
        overrides=overrides,
        max_jobs=max_jobs,
        timeout_s=timeout_s,
        db_url=db,
        retry_failed=retry_failed,
        fail_fast=fail_fast,
        probe=not no_probe,
        command=tuple(sys.argv[1:]),
        choice=EngineChoice(engine, launcher, _listed(gpus), slots, engine_options),  # type: ignore[arg-type]
    )
    outcome = launch_sweep(request, make_view(sys.stderr, quiet=quiet))
    show_end(outcome, db, report=not quiet)
    return outcome.exit_status


def _listed(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())
