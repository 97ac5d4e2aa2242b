"""The table on a terminal, drawn by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Literal

from orchestrator.render.terminal import console_for, stream_width, wants_color
from orchestrator.render.values import Scalar, exact, human, plain, visible

if TYPE_CHECKING:
    from rich.table import Table

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
) -> None:
    """Draw the rows; where the terminal is too narrow for the columns, one block a row instead.

    No value is ever shortened: a long one is folded over several lines.
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
    needed = _squeezed_width(headings, texts)
    full = max(needed, _natural_width(headings, texts))
    console = console_for(out, color=color, width=room if room is not None else full)
    if title:
        console.print(title, markup=False, highlight=False, style="bold", soft_wrap=room is None)
    if not texts:
        console.print("(no rows)", markup=False, style="dim")
    elif room is not None and needed > room:
        _write_blocks(names, texts, out)
    elif _is_plain(texts) and not wants_color(out, color) and (room is None or full <= room):
        _write_plain(headings, texts, right, out)
    else:
        console.print(_table(headings, texts, right, room))


def _table(
    headings: Sequence[str], texts: Sequence[Sequence[str]], right: set[int], room: int | None
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    widths = _fitted_widths(headings, texts, room)
    for number, name in enumerate(headings):
        side: Literal["left", "right"] = "right" if number in right else "left"
        table.add_column(Text(name), justify=side, overflow="fold", width=widths[number])
    for row in texts:
        table.add_row(*(Text(text, style=_STATUS_STYLES.get(text, "")) for text in row))
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


def heading(name: str) -> str:
    """A column's name with spaces, so that it may wrap; the unit stays where a value does not carry it."""
    return visible(name).replace("_", " ").strip() or " "


def fits(names: Sequence[str], rows: Sequence[Sequence[object]], room: int | None) -> bool:
    """Whether the rows make a table no wider than ``room`` without a word being broken."""
    texts = [[visible(human(n, plain(v))) for n, v in zip(names, row, strict=True)] for row in rows]
    return room is None or _squeezed_width([heading(name) for name in names], texts) <= room


def _natural_width(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> int:
    return _total(_natural_widths(headings, texts))


def _squeezed_width(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> int:
    return _total(_squeezed_widths(headings, texts))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * len(widths)


def _natural_widths(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """The columns' widths with nothing folded."""
    from rich.cells import cell_len

    widths = [max(len(name), 1) for name in headings]
    for row in texts:
        for number, text in enumerate(row):
            widths[number] = max(widths[number], *(cell_len(line) for line in text.split("\n")))
    return widths


def _squeezed_widths(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """The least widths at which no value and no word of a heading is broken, long texts left aside."""
    widths = [max((len(word) for word in name.split()), default=1) for name in headings]
    for row in texts:
        for number, text in enumerate(row):
            longest = max((len(word) for word in text.split()), default=0)
            widths[number] = max(widths[number], min(longest, 24))
    return widths


def _fitted_widths(headings: Sequence[str], texts: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Widths that fit the room: the widest column that can still fold gives way first."""
    widths = _natural_widths(headings, texts)
    least = _squeezed_widths(headings, texts)
    while room is not None and _total(widths) > room:
        slack = [width if width > least[number] else 0 for number, width in enumerate(widths)]
        if not any(slack):
            break
        widths[slack.index(max(slack))] -= 1
    return widths


def _write_blocks(names: Sequence[str], texts: Sequence[Sequence[str]], out: IO[str]) -> None:
    margin = max((len(name) for name in names), default=0)
    for number, row in enumerate(texts, 1):
        out.write(f"── {number} ──\n")
        for name, text in zip(names, row, strict=True):
            indented = text.replace("\n", "\n" + " " * (margin + 2))
            out.write(f"{name.ljust(margin)}  {indented}\n")
