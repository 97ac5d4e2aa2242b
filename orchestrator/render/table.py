"""The table on a terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Literal

from orchestrator.render.columns import (
    Spare,
    fitted_widths,
    fitting,
    folded,
    heading,
    is_wider,
    natural_widths,
    total,
)
from orchestrator.render.terminal import console_for, stream_width, wants_color
from orchestrator.render.values import Scalar, exact, human, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_NAMED = 12
"""So many columns that were left out are named; more are counted."""

_STATUS_STYLES = {
    "ok": "green",
    "same": "dim",
    "better": "green",
    "failed": "red",
    "timeout": "red",
    "oom_gpu": "red",
    "oom_host": "red",
    "lost": "red",
    "worse": "red",
    "error": "red",
    "running": "cyan",
    "skipped": "yellow",
    "cancelled": "yellow",
    "inconclusive": "yellow",
    "warn": "yellow",
}


def write_table(
    names: Sequence[str],
    data: Sequence[Sequence[Scalar]],
    out: IO[str],
    *,
    title: str | None = None,
    humanise: bool = True,
    color: bool | None = None,
    width: int | None = None,
    spare: Spare | None = None,
) -> None:
    """Draw the rows; where the terminal is too narrow for the columns, one block a row instead.

    No value is ever shortened: a long one is folded over several lines.

    Args:
        spare: columns that are left out before it comes to blocks; a line below the table names them.
    """
    texts = [
        [visible(human(n, v) if humanise else exact(v)) for n, v in zip(names, row, strict=True)]
        for row in data
    ]
    room = width if width is not None else stream_width(out)
    right = {
        number
        for number in range(len(names))
        if {type(row[number]) for row in data} - {type(None)} <= {int, float}
    }
    headings = [heading(name) if humanise else visible(name) or " " for name in names]
    kept = list(range(len(names)))
    if room is not None and is_wider(headings, texts, room):
        kept = fitting(names, headings, texts, spare or Spare(), room) or []
    full = room if room is not None else total(natural_widths(headings, texts))
    console = console_for(out, color=color, width=full)
    if title:
        console.print(title, markup=False, highlight=False, style="bold", soft_wrap=room is None)
    if not texts:
        console.print("(no rows)", markup=False, style="dim", soft_wrap=True)
    elif not kept:
        _write_blocks(names, texts, out)
    else:
        shown = [[row[number] for number in kept] for row in texts] if len(kept) < len(names) else texts
        sides = {place for place, number in enumerate(kept) if number in right}
        _write_columns([headings[number] for number in kept], shown, sides, out, console, room, color)
        _write_left_out([name for number, name in enumerate(headings) if number not in kept], spare, console)


def _write_columns(
    headings: Sequence[str], texts: Sequence[Sequence[str]], right: set[int], out: IO[str],
    console: Console, room: int | None, color: bool | None,
) -> None:  # fmt: skip
    has_room = room is None or not is_wider(headings, texts, room)
    if has_room and _is_plain(texts) and not wants_color(out, color):
        _write_plain(headings, texts, right, out)
    else:
        console.print(_table(headings, texts, right, room))


def _write_left_out(names: Sequence[str], spare: Spare | None, console: Console) -> None:
    if not names or spare is None:
        return
    count = f"{len(names)} columns" if len(names) > _MOST_NAMED else ", ".join(names)
    console.print(f"left out for want of width: {count}; {spare.hint}", markup=False, style="dim")


def _table(
    headings: Sequence[str], texts: Sequence[Sequence[str]], right: set[int], room: int | None
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    widths = fitted_widths(headings, texts, room)
    for number, name in enumerate(headings):
        side: Literal["left", "right"] = "right" if number in right else "left"
        table.add_column(Text(name), justify=side, overflow="fold", width=widths[number])
    for row in texts:
        cells = (
            Text(folded(text, widths[number]), style=_STATUS_STYLES.get(text, ""))
            for number, text in enumerate(row)
        )
        table.add_row(*cells)
    return table


def _is_plain(texts: Sequence[Sequence[str]]) -> bool:
    """Whether no cell has more than one line or letters of double width."""
    return not any("\n" in text or (not text.isascii() and _is_wide(text)) for row in texts for text in row)


def _is_wide(text: str) -> bool:
    from unicodedata import combining, east_asian_width

    return any(east_asian_width(letter) in "WF" or combining(letter) for letter in text)


def _write_plain(
    headings: Sequence[str], texts: Sequence[Sequence[str]], right: set[int], out: IO[str]
) -> None:
    """What rich would draw where nothing is folded or coloured: a thousand rows at once, not in a second."""
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    sides = [str.rjust if number in right else str.ljust for number in range(len(headings))]
    out.write(
        "  ".join(side(text, size) for side, text, size in zip(sides, headings, widths, strict=True)) + "\n"
    )
    out.write("─" * (sum(widths) + 2 * len(widths) - 2) + "\n")
    for row in texts:
        line = "  ".join([side(text, size) for side, text, size in zip(sides, row, widths, strict=True)])
        out.write(line + "\n")


def _write_blocks(names: Sequence[str], texts: Sequence[Sequence[str]], out: IO[str]) -> None:
    margin = max((len(name) for name in names), default=0)
    for number, row in enumerate(texts, 1):
        out.write(f"── {number} ──\n")
        for name, text in zip(names, row, strict=True):
            indented = text.replace("\n", "\n" + " " * (margin + 2))
            out.write(f"{name.ljust(margin)}  {indented}\n")
