"""``orch compare A B``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from orchestrator.cli.completion import complete_sweep
from orchestrator.cli.options import db_option, format_options, no_color_option, output_option


class Share(click.ParamType[float]):
    """A percentage, ``5%`` or ``5``, as a share of 1."""

    name = "PCT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """0.05 for ``5%``."""
        if isinstance(value, float):
            return value
        try:
            percent = float(str(value).strip().removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a percentage such as 5%", param, ctx)
        if not 0 <= percent <= 1000:
            self.fail(f"{value!r} is not between 0% and 1000%", param, ctx)
        return percent / 100


@click.command(name="compare")
@click.argument("a", metavar="A", shell_complete=complete_sweep)
@click.argument("b", metavar="B", shell_complete=complete_sweep)
@db_option
@click.option(
    "--metric",
    default="offload_s_median,reload_s_median",
    show_default=True,
    metavar="NAME,…",
    help="Columns of job_summary to compare.",
)
@click.option(
    "--margin",
    type=Share(),
    default="5%",
    show_default=True,
    help="A change that is surely within this is the same.",
)
@click.option(
    "--fail-if-worse", type=Share(), help="Exit 1 if a cell is worse by more than this or fails in B alone."
)
@click.option("--include-flagged", is_flag=True, help="Take jobs whose figures carry a flag, too.")
@click.option("--all", "show_same", is_flag=True, help="List the cells that are the same, too.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the resampling.")
@format_options("table", "markdown", "csv", "json")
@output_option
@no_color_option
def command(
    a: str, b: str, db: str, metric: str, margin: float, fail_if_worse: float | None, include_flagged: bool,
    show_same: bool, seed: int, output_format: str, output: Path | None,
) -> int:  # fmt: skip
    """Compare two sweeps cell by cell: better, worse, same or inconclusive.

    A and B are SWEEP, DB#SWEEP, or a database, which means its latest sweep. Cells pair by their key; the
    unit is a job's median, and fewer than 4 repeats a side allow no verdict. At most 5 % of whole
    comparisons of unchanged code show any change. Exit status 1 only with --fail-if-worse.
    """
    from orchestrator.analysis.compare import CompareOptions, compare
    from orchestrator.analysis.sides import parse_side, read_only, read_side
    from orchestrator.render.comparison import render_comparison
    from orchestrator.render.output import opened

    metrics = [name.strip() for name in metric.split(",") if name.strip()]
    options = CompareOptions(metrics, margin, include_flagged, seed)
    side_a, side_b = (read_side(parse_side(text, db), read_only) for text in (a, b))
    comparison = compare(side_a, side_b, options)
    with opened(output, output_format) as out:
        render_comparison(comparison, format=output_format, out=out, note=sys.stderr, show_same=show_same)
    return int(fail_if_worse is not None and comparison.is_worse_by(fail_if_worse))
