"""``orch init [FILE]``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), default=Path("sweep.yaml"))
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(file: Path, force: bool) -> None:
    """Write a commented starter sweep for this host to FILE (default: sweep.yaml)."""
    from orchestrator.launch.devices import inventory
    from orchestrator.spec.starter import Host, starter, write_starter

    here = inventory()
    host = Host(
        devices=len(here.devices),
        device_name=here.devices[0].name if here.devices else "",
        device_bytes=min((device.total_bytes for device in here.devices), default=0),
        ram_bytes=here.ram_bytes,
    )
    write_starter(file, starter(host, file.stem), force=force)
    click.echo(f"{file}: written; next: orch plan {file}")
