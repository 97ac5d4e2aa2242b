"""Prints a comparison: what differs in the environment first, then the counts, then the cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import IO

from orchestrator.analysis.compare import CellChange, Comparison
from orchestrator.analysis.verdicts import MINIMUM_REPEATS, Verdict
from orchestrator.render.columns import Spare
from orchestrator.render.formats import render_rows
from orchestrator.render.terminal import stream_width, wrapped
from orchestrator.render.values import counted, human

COLUMNS = (
    "cell", "label", "metric", "verdict", "reason", "repeats_a", "repeats_b", "median_a", "median_b", "ratio",
    "ratio_low", "ratio_high", "hodges_lehmann_ratio", "cliffs_delta", "p_mann_whitney", "p_adjusted",
)  # fmt: skip
_SPARE = Spare(("n", "cell", "95 % interval"), hint="all: --format csv")
_SHORT_COLUMNS = ("verdict", "cell", "where", "metric", "A", "B", "change", "95 % interval", "n")


def render_comparison(
    comparison: Comparison,
    *,
    format: str,  # noqa: A002
    out: IO[str],
    note: IO[str],
    show_same: bool = False,
) -> None:
    """Write the comparison.

    Args:
        format: table, markdown, csv or json; CSV and JSON hold every cell, the others leave "same" out.
        note: where CSV puts what is not a row: environment, counts, cells of one side.
        show_same: table and markdown list the cells that are the same, too.
    """
    if format == "json":
        json.dump(_document(comparison), out, indent=1, allow_nan=False)
        out.write("\n")
        return
    head = note if format == "csv" else out
    separator = "\n\n" if format == "markdown" else "\n"
    shown = [c for c in comparison.changes if show_same or c.verdict is not Verdict.SAME]
    lines = _head(comparison)
    if comparison.usual and shown and format != "csv":
        lines.append(f"unless a row says otherwise: {comparison.usual}")
    width = stream_width(head)
    head.write(separator.join(lines if width is None else (wrapped(line, width) for line in lines)))
    head.write(separator)
    if format == "csv":
        render_rows(COLUMNS, [_exact(change) for change in comparison.changes], format=format, out=out)
        return
    rank = {verdict: place for place, verdict in enumerate(Verdict)}
    shown.sort(key=lambda change: (rank[change.verdict], -abs((change.ratio or 1.0) - 1)))
    if shown:
        rows = [_short(change, comparison.where) for change in shown]
        render_rows(_SHORT_COLUMNS, rows, format=format, out=out, spare=_SPARE)


def _head(comparison: Comparison) -> list[str]:
    lines = [f"A = {comparison.name_a}, B = {comparison.name_b}"]
    if comparison.name_a == comparison.name_b:
        lines.append("A and B are the same sweep: every job is compared with itself")
    lines += [f"environment differs: {d.what} {d.a} → {d.b}" for d in comparison.environment]
    counts = comparison.counts()
    parts = [f"{counts[v]} {v}" for v in (Verdict.SAME, Verdict.WORSE, Verdict.BETTER, Verdict.INCONCLUSIVE)]
    lines.append(f"{counted(sum(counts.values()), 'cell')}: " + " · ".join(parts))
    if comparison.failing:
        lines.append(f"figures in A, only failed jobs in B: {', '.join(map(_cell6, comparison.failing))}")
    if counts[Verdict.INCONCLUSIVE] == sum(counts.values()):
        few = all(min(c.repeats_a, c.repeats_b) < MINIMUM_REPEATS for c in comparison.changes)
        quieter = "" if few else ", or a quieter host"
        lines.append(f"no cell could be judged: more repeats are needed{quieter}")
    left_out = comparison.left_out_a + comparison.left_out_b
    if left_out:
        lines.append(
            f"jobs left out for a flag: {comparison.left_out_a} of A, {comparison.left_out_b} of B"
            " (--include-flagged takes them)"
        )
    for side, cells in (("A", comparison.only_a), ("B", comparison.only_b)):
        if cells:
            lines.append(f"only in {side}: {', '.join(_cell6(cell) for cell in cells)}")
    return lines


def _short(change: CellChange, where: Mapping[str, str]) -> Sequence[object]:
    interval = ""
    if change.ratio_low is not None and change.ratio_high is not None:
        interval = f"{_percent(change.ratio_low)} … {_percent(change.ratio_high)}"
    return (
        str(change.verdict),
        _cell6(change.cell),
        where.get(change.cell, change.label),
        change.metric.removesuffix("_s_median"),
        _said(change.metric, change.median_a),
        _said(change.metric, change.median_b),
        "" if change.ratio is None else _percent(change.ratio),
        interval or change.reason,
        f"{change.repeats_a} + {change.repeats_b}",
    )


def _exact(change: CellChange) -> Sequence[object]:
    row = {name: getattr(change, name) for name in COLUMNS}
    return tuple(row.values())


def _document(comparison: Comparison) -> dict[str, object]:
    return {
        "a": comparison.name_a,
        "b": comparison.name_b,
        "margin_share": comparison.options.margin_share,
        "environment": [{"what": d.what, "a": d.a, "b": d.b} for d in comparison.environment],
        "counts": {str(verdict): count for verdict, count in comparison.counts().items()},
        "left_out_a": comparison.left_out_a,
        "left_out_b": comparison.left_out_b,
        "only_in_a": list(comparison.only_a),
        "only_in_b": list(comparison.only_b),
        "failing_in_b": list(comparison.failing),
        "cells": [dict(zip(COLUMNS, _exact(change), strict=True)) for change in comparison.changes],
    }


def _cell6(cell: str) -> str:
    return cell.removeprefix("v1:")[:6]


def _percent(ratio: float) -> str:
    share = (ratio - 1) * 100
    return f"{share:+.0f} %" if abs(share) >= 10 else f"{share:+.1f} %"


def _said(metric: str, value: float | None) -> str:
    return "" if value is None else human(metric, value)
