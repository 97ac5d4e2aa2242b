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
    from orchestrator.render.files import write_text
    from orchestrator.spec.schema import json_schema

    write_text(json.dumps(json_schema(), indent=2) + "\n", output)
