"""``orch schema``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from orchestrator.cli.options import output_option


@click.command("schema")
@output_option
def command(output: Path | None) -> None:
    """Print the JSON Schema (draft 2020-12) of the sweep file, for completion in an editor.

    With the YAML language server: write it to a file and begin the sweep with
    "# yaml-language-server: $schema=FILE".
    """
    from orchestrator.spec.schema import json_schema

    text = json.dumps(json_schema(), indent=2) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
