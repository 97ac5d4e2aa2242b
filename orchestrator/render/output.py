"""Chooses what a report's format and options ask for, and where it goes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from orchestrator.analysis.report import Report, ReportRequest, build_report, iteration_table, job_table
from orchestrator.errors import OrchError
from orchestrator.render.files import written_whole
from orchestrator.render.report import Style, write_example, write_rows, write_summaries
from orchestrator.render.terminal import paged
from orchestrator.store.queries_report import Reads

_BINARY = ("parquet",)
_NOT_FOR_TERMINALS = ("parquet", "html")


def deliver(
    store: Reads,
    request: ReportRequest,
    *,
    per: str | None,
    layout: str,
    format: str,  # noqa: A002
    output: Path | None,
    plots: Path | None = None,
    wide: bool = False,
) -> None:
    """Write the report to the file, else to stdout (through the pager where that is a terminal).

    Args:
        per: cell, job or iteration; None = cell for people, job for programs.
        layout: ``cells`` or ``example``.
        format: a format of ``render_rows``, or html.
        plots: a folder for plots, written besides.
        wide: every column of a table, however narrow the terminal.
    """
    _refuse_idle_options(request, per, layout, format)
    if wide and format != "table":
        raise OrchError(f"{format} has every column anyway", "--wide", "leave it out")
    report = build_report(store, request)
    if plots is not None:
        from orchestrator.render.plots import write_plots

        for path in write_plots(report, plots):
            print(path, file=sys.stderr)
    with opened(output, format, wide=wide) as out:
        _write(store, report, per=per, layout=layout, style=Style(format, wide=wide), out=out)


def _refuse_idle_options(request: ReportRequest, per: str | None, layout: str, format: str) -> None:  # noqa: A002
    """Refuse what would be dropped in silence.

    Raises:
        OrchError: two options that do not go together.
    """
    if request.by and per in ("job", "iteration"):
        raise OrchError(f"--by groups jobs, --per {per} keeps them apart", "--by", "give one of them")
    shape = "--layout example" if layout == "example" else "--format html" if format == "html" else None
    if shape is None:
        return
    is_example = layout == "example"
    idle = {
        "--per": per is not None,
        "--layout": is_example and format == "html",
        "--by": is_example and bool(request.by),
        "--metric": is_example and bool(request.metrics),
    }
    for option, given in idle.items():
        if given:
            raise OrchError(f"{option} does not go with {shape}", option, "give one of them")


def _write(store: Reads, report: Report, *, per: str | None, layout: str, style: Style, out: IO[Any]) -> None:
    if style.format == "html":
        from orchestrator.render.html import write_html

        write_html(store, report, out)
    elif layout == "example":
        write_example(report, style, out)
    elif per == "iteration":
        write_rows(report, *iteration_table(store, report), style, out)
    elif per == "job" or (per is None and not report.by and not style.for_people):
        write_rows(report, *job_table(report), style, out)
    else:
        write_summaries(report, style, out)


@contextmanager
def opened(output: Path | None, format: str, *, wide: bool = False) -> Iterator[IO[Any]]:  # noqa: A002
    """The stream to write to. A file appears whole or not at all; ``wide`` lines are for scrolling sideways.

    Raises:
        OrchError: the folder is not there or not writable, or the format is not for the terminal.
    """
    if output is None:
        if format in _NOT_FOR_TERMINALS and sys.stdout.isatty():
            raise OrchError(f"{format} is not for a terminal", "--format", "write it to a file with -o FILE")
        with paged(sys.stdout, wide=wide) as out:
            yield out
        return
    with written_whole(output, binary=format in _BINARY) as out:
        yield out
