"""How wide are columns, where may their texts be broken, and which give way to a narrow terminal?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.render.values import human, plain, visible

GAP = 2
"""Blanks after a column."""

_LONGEST_WHOLE = 20
"""A word of more letters may be broken where nothing else helps."""

# A figure and its unit, and the two halves of "97 / 88 %", stay on one line.
_HELD = re.compile(r"(?<=[\d–?]) (?=(?:[kMGTP]?B(?:/s)?|m?s|min|h|d|%|/)(?:[ –)]|$))|(?<=/) (?=[\d<–])")
_HOLD = "\N{NO-BREAK SPACE}"
# After a "+", a comma or the "=" of a long value, too: state sets are long words without a blank.
_BREAK = re.compile(r"(?<=[+,;])(?=[^ \d])|(?<==)(?=[a-z_]{8})| ")


@dataclass(frozen=True, slots=True)
class Spare:
    """Columns that may be left out where the terminal is too narrow for all.

    Attributes:
        names: the least important first.
        cheap: the first so many of them go even for this alone: that no row takes a second line.
        hint: how to see them.
    """

    names: tuple[str, ...] = ()
    cheap: int = 0
    hint: str = ""


def heading(name: str) -> str:
    """A column's name with spaces, so that it may wrap; the unit stays where a value does not carry it.

    A condition such as ``pin_memory=0`` keeps its spelling.
    """
    text = visible(name)
    return (text if "=" in text else text.replace("_", " ")).strip() or " "


def natural_widths(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """The columns' widths with nothing folded."""
    from rich.cells import cell_len

    widths = [max(len(name), 1) for name in headings]
    for row in texts:
        for number, text in enumerate(row):
            widths[number] = max(widths[number], *(cell_len(line) for line in text.split("\n")))
    return widths


def squeezed_widths(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """The least widths at which no value and no word of a heading is broken, long texts left aside."""
    from rich.cells import cell_len

    widths = [max((len(word) for word in name.split()), default=1) for name in headings]
    for row in texts:
        for number, text in enumerate(row):
            longest = max(map(cell_len, _pieces(text)))
            widths[number] = max(widths[number], min(longest, _LONGEST_WHOLE))
    return widths


def is_wider(headings: Sequence[str], texts: Sequence[Sequence[str]], room: int) -> bool:
    """Whether the columns with nothing folded take more than the room; looks no further than it must."""
    taken = -GAP
    for number in range(len(headings)):
        taken += _width(natural_widths, number, headings, texts) + GAP
        if taken > room:
            return True
    return False


def total(widths: Sequence[int]) -> int:
    """Columns of the terminal that a table of these columns takes; the last one has no gap behind it."""
    return sum(widths) + GAP * max(0, len(widths) - 1)


def fitted_widths(headings: Sequence[str], texts: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Widths that fit the room: headings fold before values, and the widest gives way first."""
    widths = natural_widths(headings, texts)
    if room is None:
        return widths
    for least in (unfolded_widths(headings, texts), squeezed_widths(headings, texts)):
        while total(widths) > room:
            slack = [width if width > least[number] else 0 for number, width in enumerate(widths)]
            if not any(slack):
                break
            widths[slack.index(max(slack))] -= 1
    return widths


def unfolded_widths(headings: Sequence[str], texts: Sequence[Sequence[str]]) -> list[int]:
    """The least widths at which every value keeps its line."""
    squeezed, natural = squeezed_widths(headings, texts), natural_widths([""] * len(headings), texts)
    return [max(pair) for pair in zip(squeezed, natural, strict=True)]


def folded(text: str, width: int) -> str:
    """The text with line ends where a line would be longer than ``width``; long words are left whole."""
    from rich.cells import cell_len

    lines = []
    for line in text.split("\n"):
        built = ""
        for piece in _with_blanks(line):
            if built and cell_len((built + piece).rstrip()) > width:
                lines.append(built.rstrip())
                built = piece.lstrip()
            else:
                built += piece
        lines.append(built.rstrip())
    return "\n".join(lines).replace(_HOLD, " ")


def _with_blanks(line: str) -> list[str]:
    """Where a line may be broken: its pieces, each with the blank before it."""
    held = _HELD.sub(_HOLD, line)
    places = [match.start() for match in _BREAK.finditer(held)]
    return [held[a:b] for a, b in zip([0, *places], [*places, len(held)], strict=True) if b > a]


def _pieces(text: str) -> list[str]:
    return [piece.strip() for line in text.split("\n") for piece in _with_blanks(line)] or [""]


def shown_columns(
    names: Sequence[str], rows: Sequence[Sequence[object]], spare: Spare, room: int | None
) -> list[int] | None:
    """The numbers of the columns that fit the room together, spare ones dropped in their order.

    None where not even the columns that are not spare fit.
    """
    texts = [[visible(human(n, plain(v))) for n, v in zip(names, row, strict=True)] for row in rows]
    return fitting(names, [heading(name) for name in names], texts, spare, room)


def fits(names: Sequence[str], rows: Sequence[Sequence[object]], spare: Spare, room: int | None) -> bool:
    """Whether the columns that are not spare fit the room; no others are looked at."""
    if room is None:
        return True
    spared = set(spare.names)
    kept = [number for number, name in enumerate(names) if name not in spared]
    narrowed = [[row[number] for number in kept] for row in rows]
    return shown_columns([names[number] for number in kept], narrowed, Spare(), room) is not None


def fitting(
    names: Sequence[str],
    headings: Sequence[str],
    texts: Sequence[Sequence[str]],
    spare: Spare,
    room: int | None,
) -> list[int] | None:
    """As ``shown_columns``, of what is text already."""
    if room is None:
        return list(range(len(names)))
    place = {name: number for number, name in enumerate(names)}
    for measure, order in (
        (unfolded_widths, spare.names[: spare.cheap]),
        (squeezed_widths, spare.names),
    ):
        droppable = [place[name] for name in order if name in place]
        kept = set(range(len(names))) - set(droppable)
        taken = sum(_width(measure, number, headings, texts) + GAP for number in kept) - GAP
        if taken > room:
            continue
        # From the most important on, as far as the room goes; the widths of all the rest are never asked for.
        for number in reversed(droppable):
            taken += _width(measure, number, headings, texts) + GAP
            if taken > room:
                break
            kept.add(number)
        return sorted(kept)
    return None


def _width(
    measure: Callable[[Sequence[str], Sequence[Sequence[str]]], list[int]],
    number: int,
    headings: Sequence[str],
    texts: Sequence[Sequence[str]],
) -> int:
    return measure([headings[number]], [[row[number]] for row in texts])[0]
