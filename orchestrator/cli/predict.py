"""``orch predict``."""

from __future__ import annotations

import sys

import click

from orchestrator.cli.options import db_option, format_options, no_color_option


@click.command(name="predict")
@db_option
@click.option("--params", "parameters", type=float, metavar="N", help="Parameters of the model, e.g. 7.6e9.")
@click.option("--model", metavar="NAME", help="A named model such as llama-2-7b.")
@click.option("--num-gpus", type=click.IntRange(1), help="Ranks on each node.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="AXIS=VALUE",
    help="Any axis, e.g. hidden_dim=8192 or pin_memory=true. May be repeated.",
)
@click.option("--host", metavar="NAME", help="Whose measurements; else this host's, or the only one's.")
@format_options("table", "json")
@no_color_option
def command(
    db: str, parameters: float | None, model: str | None, num_gpus: int | None, settings: tuple[str, ...],
    host: str | None, output_format: str,
) -> None:  # fmt: skip
    """Predict seconds and bytes for a size and rank count that was not measured.

    Bytes follow from the formula. Seconds need measurements: of the same host, stack and setting, at three
    sizes or more. Without a setting axis every measured setting is answered, the fastest first.
    """
    from orchestrator.analysis.predict import outlook
    from orchestrator.analysis.questions import make_question, once
    from orchestrator.analysis.sources import measured_or_none, this_host
    from orchestrator.render.prediction import render_outlook
    from orchestrator.store.url import resolve_url

    named = [f"model={model}"] if model else []
    ranks = [f"num_gpus={num_gpus}"] if num_gpus else []
    for option in (*named, *ranks):
        once(option, settings)
    question = make_question([*settings, *named, *ranks], parameters=parameters, host=host)
    found = outlook(question, measured_or_none(db), this_host(), resolve_url(db).shown)
    render_outlook(found, format=output_format, out=sys.stdout)
