"""How is a plan shown? A line, a table of cells, what will be skipped; or JSON of its jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import IO

from orchestrator.engines.forecast import CellForecast, Forecast
from orchestrator.render.columns import Spare, shown_columns
from orchestrator.render.formats import render_rows
from orchestrator.render.terminal import stream_width
from orchestrator.render.values import human, plain
from orchestrator.spec.cell import Cell
from orchestrator.spec.command import launch_line
from orchestrator.spec.plan import Plan
from orchestrator.spec.presets import states_label

_WIDE = 200
"""Columns of a table that nobody asked to be narrower."""
_FORETOLD = ("GPU_bytes", "pinned_host_bytes", "fits")
_ALWAYS_SHOWN = ("hidden_dim", "nlayers")


def write_plan(
    plan: Plan, forecast: Forecast, out: IO[str], *, duration: str | None = None, run_line: str = ""
) -> None:
    """The plan for a person.

    Args:
        duration: the time expected, in words; None if no measured cell tells.
        run_line: the command that runs it.
    """
    device = forecast.capacity.label if forecast.capacity else f"engine {plan.engine.name}"
    words = [_count(plan), device, f"launcher {plan.launcher.name}", *([duration] if duration else [])]
    out.write(" · ".join(words) + "\n")
    axes = plan.varying or _ALWAYS_SHOWN
    columns = ["cell", *axes, *_FORETOLD]
    rows = [_row(item, axes, forecast.capacity is not None) for item in forecast.cells]
    if shown_columns(columns, rows, Spare(), stream_width(out) or _WIDE) is None:
        out.write(_described_first(rows[0], axes) + "\n")
        columns = ["cell", "differs_in", *_FORETOLD]
        rows = [[row[0], _differences(row, rows[0], axes), *row[len(axes) + 1 :]] for row in rows]
    render_rows(columns, rows, format="table", out=out)
    for reason, cells in Counter(item.refusal for item in forecast.cells if item.refusal).items():
        jobs = cells * plan.repeats
        out.write(f"{jobs} job{'s' if jobs > 1 else ''} will be skipped: {reason}\n")
    first = plan.jobs[0]
    out.write(f"{first.cell.short} alone: {launch_line(plan, first.cell)}\n")
    if run_line:
        out.write(f"run it: {run_line}\n")


def write_plan_json(plan: Plan, out: IO[str]) -> None:
    """``{"count": n, "jobs": [{"job", "cell", "repeat", "parameters", "command"}]}``."""
    described: dict[str, tuple[dict[str, object], str]] = {}
    jobs = []
    for job in plan.jobs:
        if job.cell.key not in described:
            described[job.cell.key] = (job.cell.parameters(), launch_line(plan, job.cell))
        parameters, line = described[job.cell.key]
        jobs.append(
            {
                "job": job.label,
                "cell": job.cell.key,
                "repeat": job.repeat,
                "parameters": parameters,
                "command": line,
            }
        )
    out.write(json.dumps({"count": len(jobs), "jobs": jobs}, indent=1, allow_nan=False) + "\n")


def _count(plan: Plan) -> str:
    jobs, cells = len(plan.jobs), len(plan.cells)
    return (
        f"{plan.name}: {jobs} job{'s' if jobs > 1 else ''}: {cells} cell{'s' if cells > 1 else ''}"
        f" × {plan.repeats}"
    )


def _row(item: CellForecast, axes: Sequence[str], is_host_known: bool) -> list[object]:
    fits = "unknown" if not is_host_known or item.prediction.gpu_bytes is None else "yes"
    return [
        item.cell.short,
        *(_shown(item.cell, axis) for axis in axes),
        item.prediction.gpu_bytes,
        item.pinned_node_bytes,
        "no" if item.refusal else fits,
    ]


def _described_first(row: Sequence[object], axes: Sequence[str]) -> str:
    """All that differs anywhere, as the first cell has it: the others are told by what they change."""
    values = zip(axes, row[1:], strict=False)
    return f"{row[0]}: " + ", ".join(
        f"{axis} {_word(axis, value)}" for axis, value in values if value is not None
    )


def _differences(row: Sequence[object], first: Sequence[object], axes: Sequence[str]) -> str:
    """``zero_stage 2, dtype float16``: where the cell is not as the first one."""
    triples = zip(axes, row[1:], first[1:], strict=False)
    return ", ".join(f"{axis} {_word(axis, mine)}" for axis, mine, other in triples if mine != other)


def _word(axis: str, value: object) -> str:
    return human(axis, plain(value))


def _shown(cell: Cell, axis: str) -> object:
    value = cell.parameters().get(axis)
    if axis == "included_state" and isinstance(value, str):
        return states_label(value)
    return json.dumps(value) if isinstance(value, (list, dict)) else value
