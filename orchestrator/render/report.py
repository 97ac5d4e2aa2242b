"""Writes a report as text for people (table, markdown) or rows for programs (CSV, JSON, Parquet)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from orchestrator.analysis.example import FOUR_SETTINGS, ExampleTable, example_rows, example_tables
from orchestrator.analysis.jobs import Job, Value, axis_text, axis_value
from orchestrator.analysis.report import AXIS_PREFIX, Report, constants, summary_table
from orchestrator.analysis.summary import Spread, Summary
from orchestrator.render.columns import Spare, fits
from orchestrator.render.formats import render_rows
from orchestrator.render.narrow import (
    BOUNDLESS,
    TIMES,
    WHERE,
    merged_axes,
    said_short,
    spare_columns,
    spare_figures,
)
from orchestrator.render.sentences import (
    best_lines,
    caption_lines,
    environment_letter,
    how_to_read,
    mixed_line,
    percent,
    trouble_lines,
    waiting_line,
)
from orchestrator.render.terminal import console_for, stream_width
from orchestrator.render.values import human, interval_text, markdown_field, three_digits, visible


@dataclass(frozen=True, slots=True)
class Style:
    """How text is written: the format, and whether in colour."""

    format: str
    color: bool | None = None
    wide: bool = False
    """Every column, wider than the terminal if need be."""

    @property
    def for_people(self) -> bool:
        """Whether sentences go with the rows."""
        return self.format in ("table", "markdown")

    def room(self, out: IO[Any]) -> int | None:
        """Columns that a table may take; None = any number."""
        return None if self.wide or self.format != "table" else stream_width(out)


def write_summaries(report: Report, style: Style, out: IO[Any]) -> None:
    """A row a cell or group: with sentences for people, exact numbers for programs."""
    if not style.for_people:
        exact_columns, exact_rows = summary_table(report)
        render_rows(exact_columns, exact_rows, format=style.format, out=out)
        return
    _say(best_lines(report), style, out, strong=True)
    _say(caption_lines(report), style, out)
    _say([line for line in (mixed_line(report),) if line], style, out, strong=True)
    columns, texts = people_table(report)
    spare = spare_figures(columns, texts)
    room = style.room(out)
    if not fits(columns, texts, spare, room):
        merged = merged_axes(columns, texts, report.axes)
        if fits(*merged[:2], spare, room):
            columns, texts, usual = merged
            _say([f"unless a row says otherwise: {usual}"] if usual else [], style, out)
    _draw(columns, texts, style, out, spare)
    out.write("\n")
    if report.summaries:
        _say([how_to_read(report)], style, out)
    _write_ending(report, style, out)


def write_rows(
    report: Report, columns: Sequence[str], rows: Iterable[Sequence[Value]], style: Style, out: IO[Any]
) -> None:
    """Rows as they are, a caption above them for people."""
    if not style.for_people:
        render_rows(columns, rows, format=style.format, out=out)
        return
    # Rows of jobs without figures, too: what all of them have in common is less.
    whole = replace(report, constants=constants(report.jobs, report.jobs.jobs))
    _say(caption_lines(whole), style, out)
    said = said_short(columns, rows)
    varying = report.by or report.jobs.varying()
    axes = [prefixed if (prefixed := AXIS_PREFIX + name) in columns else name for name in varying]
    wanted = report.metrics or TIMES
    spare = spare_columns(columns, said, axes, wanted)
    room = style.room(out)
    if not fits(columns, said, spare, room):
        merged = merged_axes(columns, said, axes)
        less = spare_columns(*merged[:2], [WHERE], wanted)
        if fits(*merged[:2], less, room):
            columns, said, usual = merged
            spare = less
            _say([f"unless a row says otherwise: {usual}"] if usual else [], style, out)
        else:  # the cell of each row tells its axes, too
            last = (name for name in reversed(axes) if name not in wanted)
            spare = replace(spare, names=(*spare.names, *last))
    _draw(columns, said, style, out, spare)


def _draw(
    columns: Sequence[str], rows: Iterable[Sequence[Value]], style: Style, out: IO[Any], spare: Spare
) -> None:
    """The rows in the style's format; ``--wide`` gives a table all the room that it wants."""
    width = BOUNDLESS if style.wide else None
    render_rows(columns, rows, format=style.format, out=out, color=style.color, width=width, spare=spare)


def write_example(report: Report, style: Style, out: IO[Any]) -> None:
    """The trial table of DeepSpeed's example, one for each size."""
    tables = example_tables(report.jobs)
    if not style.for_people:
        columns, rows = example_rows(tables)
        render_rows(columns, rows, format=style.format, out=out)
        return
    flagged = any(job.flags() for job in report.jobs.measured)
    reading = "seconds, offload / load: medians of each trial's warm iterations" + "; ! = flagged" * flagged
    # The blocks hold jobs without figures, too: what all of them have in common is less.
    whole = replace(report, constants=constants(report.jobs, report.jobs.jobs))
    _say([*caption_lines(whole), reading], style, out)
    for table in tables:
        names = ["trial", *(f"pin_memory={int(pin)} non_blocking={int(nb)}" for pin, nb in FOUR_SETTINGS)]
        title = ", ".join(axis_text(name, value) for name, value in table.axes) or None
        render_rows(
            names, _example_texts(table), format=style.format, out=out, title=title, color=style.color
        )
        out.write("\n")
    _write_ending(report, style, out)


def _example_texts(table: ExampleTable) -> list[list[str]]:
    return [[str(trial.number), *(_offload_load(job) for job in trial.jobs)] for trial in table.trials]


def _offload_load(job: Job | None) -> str:
    if job is None:
        return "–"
    offload, reload = job.number("offload_s_median"), job.number("reload_s_median")
    if not job.is_measured or offload is None or reload is None:
        return job.status
    return f"{three_digits(offload)} / {three_digits(reload)}" + (" !" if job.flags() else "")


def people_table(report: Report) -> tuple[list[str], list[list[Value]]]:
    """The table for a person: the axes that vary, then figures with their range; empty columns left out."""
    several = len({summary.environment_id for summary in report.summaries}) > 1
    names: list[str] = [*([] if report.by else ["cell"]), *report.axes, "jobs"]
    rows: list[list[Value]] = []
    figures = [_metric_texts(report, s) if report.metrics else _headline_texts(s) for s in report.summaries]
    shown = [
        name
        for name in (figures[0] if figures else {})
        # A metric asked for by name stays, to say that it has no figure.
        if report.metrics or any(texts[name] for texts in figures)
    ]
    for summary, texts in zip(report.summaries, figures, strict=True):
        key = (axis_value(name, value) for name, value in zip(report.axes, summary.key, strict=True))
        row: list[Value] = [*([] if report.by else [summary.jobs[0].cell6]), *key, len(summary.jobs)]
        row += [texts[name] or ("n/a" if report.metrics else "–") for name in shown]
        if several:
            row.append(environment_letter(report.jobs, summary.environment_id))
        rows.append([*row, "; ".join(summary.flags)])
    columns = [*names, *shown, *(["environment"] if several else []), "flags"]
    if not any(row[-1] for row in rows):
        return columns[:-1], [row[:-1] for row in rows]
    return columns, rows


def _headline_texts(summary: Summary) -> dict[str, str]:
    metrics = summary.metrics
    down, up = metrics["offload_link_share"].median, metrics["reload_link_share"].median
    # Where nothing is copied (a buffer that is only freed) there is no share either.
    known = (down is not None or up is not None) and metrics["copied_bytes"].median != 0
    share = " / ".join("–" if one is None else percent(one) for one in (down, up)) + " %" if known else ""
    freed = "n/a" if summary.on_cpu else _median_text("freed_bytes", metrics["freed_bytes"])
    return {
        "offload": spread_text("offload_s", metrics["offload_s_median"]),
        "reload": spread_text("reload_s", metrics["reload_s_median"]),
        "cold offload": _median_text("offload_s", metrics["offload_cold_s"]),
        "cold reload": _median_text("reload_s", metrics["reload_cold_s"]),
        "of link": share,
        "states": _median_text("copied_bytes", metrics["copied_bytes"]) if summary.on_cpu else "",
        "freed": freed,
        "pinned host": _pinned_text(metrics["pinned_bytes"]),
    }


def _metric_texts(report: Report, summary: Summary) -> dict[str, str]:
    return {
        name: "n/a"
        if summary.on_cpu and name in _DEVICE_ONLY
        else spread_text(name.removesuffix("_median"), summary.metrics[name])
        for name in report.metrics
    }


_DEVICE_ONLY = ("freed_bytes", "device_freed_bytes")


def _median_text(column: str, found: Spread) -> str:
    return "" if found.median is None else human(column, found.median)


def _pinned_text(found: Spread) -> str:
    """Pinned bytes; the few that the optimizer pins for its own flags are not worth a figure."""
    if found.median is not None and 0 < found.median < 1000:
        return "<1 kB"
    return _median_text("pinned_bytes", found)


def spread_text(column: str, found: Spread) -> str:
    """``0.642 s (0.640–0.655)``; without a range if there is one figure only."""
    if found.median is None or found.least is None or found.greatest is None:
        return ""
    if found.count < 2:
        return human(column, found.median)
    return interval_text(column, found.median, found.least, found.greatest)


def _write_ending(report: Report, style: Style, out: IO[str]) -> None:
    things = [sentence for _, sentence in report.answers.things]
    _list(f"{len(things)} thing{'s' if len(things) != 1 else ''} to know", things, "·", style, out)
    troubles = trouble_lines(report)
    count = len(report.troubles)
    _list(f"{count} job{'s' if count != 1 else ''} without figures", troubles, "✗", style, out)
    _say([line for line in (waiting_line(report),) if line], style, out)


def _list(title: str, lines: Sequence[str], mark: str, style: Style, out: IO[str]) -> None:
    if not lines:
        return
    if style.format == "markdown":
        out.write(f"**{title}**\n\n" + "".join(f"- {markdown_field(line)}\n" for line in lines) + "\n")
        return
    _say([title], style, out, strong=True, gap=False)
    _say([f" {mark} {line}" for line in lines], style, out)


def _say(lines: Sequence[str], style: Style, out: IO[str], *, strong: bool = False, gap: bool = True) -> None:
    """Lines of prose: wrapped at words to the terminal, a blank line after them."""
    if not lines:
        return
    if style.format == "markdown":
        out.write("".join(f"{markdown_field(line.strip())}  \n" for line in lines) + "\n")
        return
    console = console_for(out, color=style.color)
    for line in lines:
        console.print(
            visible(line), markup=False, style="bold" if strong else None, soft_wrap=stream_width(out) is None
        )
    if gap:
        out.write("\n")
