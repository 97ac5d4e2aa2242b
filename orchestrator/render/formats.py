"""Writes rows as a table, markdown, CSV, JSON or Parquet.

Numbers are exact in CSV, JSON and Parquet; a table may show them short. Missing is an empty CSV field
and JSON ``null``; NaN and infinities are the words ``NaN``, ``inf``, ``-inf`` in CSV and strings of that
spelling in JSON, so neither is taken for missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import IO, Any

from orchestrator.errors import OrchError
from orchestrator.render.columns import Spare
from orchestrator.render.values import (
    Scalar,
    csv_field,
    exact,
    human,
    json_value,
    markdown_field,
    plain,
    unique_names,
)

ROW_FORMATS = ("table", "markdown", "csv", "json", "parquet")
"""What ``render_rows`` can write."""


def render_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    format: str,  # noqa: A002
    out: IO[Any],
    title: str | None = None,
    humanise: bool = True,
    color: bool | None = None,
    width: int | None = None,
    spare: Spare | None = None,
) -> None:
    """Write every row, none dropped and none merged.

    Args:
        columns: names with their unit; equal names are made distinct.
        rows: values in the order of the columns.
        format: one of ``ROW_FORMATS``.
        out: text stream; Parquet needs a binary one, or a text stream with a ``buffer``.
        title: a line above a table or markdown; the other formats have no place for it.
        humanise: sizes, times and shares short in table and markdown. False prints each value exactly.
        color: None = only on a terminal and without NO_COLOR.
        width: columns of the terminal; None = ask it, and unlimited where there is none.
        spare: columns of a table that may be left out where the terminal is too narrow.
    """
    names = unique_names(columns)
    lines = ([plain(value) for value in row] for row in rows)
    if format == "csv":
        _write_csv(names, lines, out)
        return
    if format == "json":
        _write_json(names, lines, out)
        return
    data = list(lines)
    if format == "markdown":
        out.write(markdown_table(names, data, title=title, humanise=humanise))
    elif format == "parquet":
        _write_parquet(names, data, out)
    elif format == "table":
        from orchestrator.render.table import write_table

        write_table(names, data, out, title=title, humanise=humanise, color=color, width=width, spare=spare)
    else:
        raise OrchError(f"format '{format}' is unknown", "--format", "use " + ", ".join(ROW_FORMATS))


def _write_csv(names: Sequence[str], data: Iterable[Sequence[Scalar]], out: IO[str]) -> None:
    out.write(",".join(csv_field(name) for name in names) + "\n")
    for row in data:
        # A blank line would be skipped by every reader.
        out.write((",".join([csv_field(value) for value in row]) or '""') + "\n")


def _write_json(names: Sequence[str], data: Iterable[Sequence[Scalar]], out: IO[str]) -> None:
    # One object a line: an array for a program, still greppable, and never the whole text in memory.
    out.write("[")
    number = -1
    for number, row in enumerate(data):
        item = {name: json_value(value) for name, value in zip(names, row, strict=True)}
        out.write(",\n " if number else "\n ")
        out.write(json.dumps(item, ensure_ascii=False, allow_nan=False))
    out.write("]\n" if number < 0 else "\n]\n")


def markdown_table(
    names: Sequence[str],
    data: Sequence[Sequence[Scalar]],
    *,
    title: str | None = None,
    humanise: bool = True,
) -> str:
    """One GitHub markdown table, whatever the values hold."""
    right = _numeric_columns(names, data)
    lines = [f"**{markdown_field(title)}**", ""] if title else []
    lines.append("| " + " | ".join(markdown_field(name) for name in names) + " |")
    lines.append("|" + "|".join("---:" if number in right else "---" for number in range(len(names))) + "|")
    for row in data:
        texts = [human(n, v) if humanise else exact(v) for n, v in zip(names, row, strict=True)]
        lines.append("| " + " | ".join(markdown_field(text) for text in texts) + " |")
    return "\n".join(lines) + "\n"


def _numeric_columns(names: Sequence[str], data: Sequence[Sequence[Scalar]]) -> set[int]:
    """Columns whose values are numbers (booleans apart) or missing, with one number at least."""
    numeric = set()
    for number in range(len(names)):
        kinds = {type(row[number]) for row in data} - {type(None)}
        if kinds and kinds <= {int, float}:
            numeric.add(number)
    return numeric


def _write_parquet(names: Sequence[str], data: Sequence[Sequence[Scalar]], out: IO[Any]) -> None:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as e:
        raise OrchError("Parquet needs pyarrow", "--format", "pip install pyarrow, or use csv") from e
    columns = [arrow.array(_one_type([row[number] for row in data])) for number in range(len(names))]
    binary = getattr(out, "buffer", out)
    parquet.write_table(arrow.table(columns, names=list(names)), binary)


def _one_type(values: list[Scalar]) -> Sequence[Scalar]:
    """A column that Arrow takes: integers beside floats become floats, other mixtures text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1:
        return [None if value is None else exact(value) for value in values]
    return values
