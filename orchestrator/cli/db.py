"""``orch db check|upgrade|export|import|delete|metadata``."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.completion import complete_sweep
from orchestrator.cli.group import HelpfulGroup
from orchestrator.cli.options import confirm, db_option, output_option


@click.group(name="db", cls=HelpfulGroup)
def command() -> None:
    """Check, upgrade, export, import and prune a results database."""


@command.command()
@db_option
@click.option("--fix", is_flag=True, help="Recompute job_result and lift counters that are too low.")
def check(db: str, fix: bool) -> int:
    """Look for damage, orphans, impossible statuses and results that differ from their rows.

    Exit status 1 if something is wrong.
    """
    from orchestrator.render.values import counted
    from orchestrator.store import open_store

    with open_store(db, readonly=not fix) as store:
        if fix:
            click.echo(f"{counted(store.mend(), 'job')} recomputed", err=True)
        findings = store.check()
    for finding in findings:
        click.echo(f"{finding.where}: {finding.what}" + (f"; {finding.fix}" if finding.fix else ""))
    click.echo(counted(len(findings), "problem") if findings else "ok", err=bool(findings))
    return 1 if findings else 0


@command.command()
@db_option
@click.option("--no-backup", is_flag=True, help="Do not copy the database first.")
def upgrade(db: str, no_backup: bool) -> None:
    """Take an older database to the schema of this orch, after a backup."""
    from orchestrator.store import open_store
    from orchestrator.store.upgrade import upgrade_store

    with open_store(db, any_version=True) as store:
        done = upgrade_store(store, backup=not no_backup)
    if done.before == done.after:
        click.echo(f"schema {done.after}: nothing to do")
    else:
        kept = f"; the old one is {done.backup}" if done.backup else ""
        click.echo(f"schema {done.before} -> {done.after}{kept}")


@command.command()
@click.argument("target")
@click.argument("sweeps", nargs=-1)
@db_option
@click.option("--without-samples", is_flag=True, help="Leave memory_sample out.")
def export(target: str, sweeps: tuple[str, ...], db: str, without_samples: bool) -> None:
    """Copy SWEEPS (default: all) into TARGET, a file or a URL; made if it is not there, else merged into."""
    from orchestrator.store import open_store
    from orchestrator.store.importing import copy_into

    with open_store(db, readonly=True) as source:
        done = copy_into(source, target, sweeps, samples=not without_samples)
    click.echo(done.told())


@command.command(name="import")
@click.argument("source")
@click.argument("sweeps", nargs=-1)
@db_option
@click.option("--without-samples", is_flag=True, help="Leave memory_sample out.")
@click.option("--name", help="A log: name of the sweep that it becomes; default: the file's name.")
@click.option("--set", "known", multiple=True, metavar="AXIS=VALUE", help="A log: what it does not say.")
def import_(
    source: str, sweeps: tuple[str, ...], db: str, without_samples: bool, name: str | None,
    known: tuple[str, ...],
) -> None:  # fmt: skip
    """Merge SOURCE into the database: another orch database, or an offload_states.log of DeepSpeed's example.

    Rows that are there already are left alone. A sweep whose name another sweep has gets a new one.
    """
    from orchestrator.store.importing import import_into

    done = import_into(db, source, sweeps, samples=not without_samples, name=name, known=known)
    click.echo(done.told())


@command.command()
@click.argument("sweep", shell_complete=complete_sweep)
@db_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(sweep: str, db: str, yes: bool) -> None:
    """Delete SWEEP and everything measured in it. Logs of its attempts stay on disk."""
    from orchestrator.render.values import counted
    from orchestrator.store import open_store

    with open_store(db) as store:
        store.sweep(sweep)
        if not yes:
            confirm(f"delete sweep {sweep} from {store.shown}", "--yes")
        gone = store.delete_sweep(sweep)
    click.echo(f"deleted {gone.name}: {counted(gone.jobs, 'job')}, {counted(gone.attempts, 'attempt')}")


@command.command()
@db_option
@output_option
def metadata(db: str, output: Path | None) -> None:
    """Print a metadata file for Datasette: titles, units, descriptions, canned queries.

    datasette orch.db --metadata metadata.json
    """
    import json

    from orchestrator.render.output import opened
    from orchestrator.store.datasette import metadata as datasette_metadata
    from orchestrator.store.url import resolve_url

    path = resolve_url(db).path
    with opened(output, "json") as out:
        out.write(json.dumps(datasette_metadata(path.stem if path else "orch"), indent=1) + "\n")
