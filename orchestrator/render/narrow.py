"""What does a report leave out, or say shorter, where the terminal is narrow?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.analysis.jobs import Value, axis_value, cell6
from orchestrator.analysis.report import AXIS_PREFIX
from orchestrator.render.columns import Spare
from orchestrator.render.values import human

BOUNDLESS = 10_000
"""A width that no table reaches."""

_HINT = "all: --wide, or --format csv"
# The least important first. The answer (which setting, how long) and what casts doubt on it never go.
_CHEAP = ("states", "jobs", "cold reload", "cold offload")
_FIGURES = (*_CHEAP, "of link", "pinned host", "freed")

TIMES = ("offload_s_median", "reload_s_median", "offload_s", "reload_s")
_FEW_AXES = 3
"""So many axes are said in every row; of more, what most rows share is said once."""

_JOB, _ITERATION = ("cell", "repeat", "status"), ("cell", "repeat", "rank", "iteration")
_NEXT = (
    "job_id",
    "failure_kind",
    "attempt",
    "step_s",
    "is_warmup",
    "is_cold",
    "freed_bytes",
    "copied_bytes",
    "offload_cold_s",
    "reload_cold_s",
    "pinned_bytes",
    "offload_gbps",
    "reload_gbps",
    "states_intact",
    "bytes_match",
)
"""What a row of a job or an iteration shows next where there is room for more than the times."""


def spare_figures(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> Spare:
    """The figures of a summary that may go; one that says "n/a" in every row goes first."""
    empty = [
        name
        for number, name in enumerate(columns)
        if name in _FIGURES and all(row[number] == "n/a" for row in rows)
    ]
    names = (*empty, *(name for name in _FIGURES if name not in empty))
    return Spare(names, len({*empty, *_CHEAP}), _HINT)


def spare_columns(
    columns: Sequence[str], rows: Sequence[Sequence[Value]], axes: Sequence[str], wanted: Sequence[str]
) -> Spare:
    """All columns of a job or an iteration but its name, its state, its axes and what is ``wanted``."""
    kept = {*(_ITERATION if "rank" in columns else _JOB), *axes, *wanted}
    rest = [name for name in columns if name not in kept and name not in _NEXT]
    following = [name for name in _NEXT if name in columns and name not in kept]
    empty = {name for number, name in enumerate(columns) if all(row[number] is None for row in rows)}
    # What is empty in every row goes before all else.
    ordered = (*reversed(rest), *reversed(following))
    names = (*(n for n in ordered if n in empty), *(n for n in ordered if n not in empty))
    return Spare(names, len(names), _HINT)


def merged_axes(
    columns: Sequence[str], rows: Sequence[Sequence[Value]], axes: Sequence[str]
) -> tuple[list[str], list[list[Value]], str]:
    """The table with one column for all axes, which folds: ``hidden_dim=4096 pin_memory=yes``.

    The third value names what most rows have in common; a row says of these axes only what is otherwise.
    """
    places = {number: name for number, name in enumerate(columns) if name in set(axes)}
    usual = {}
    for number in places if len(places) > _FEW_AXES else ():
        value, count = Counter(row[number] for row in rows).most_common(1)[0]
        if count * 2 > len(rows):
            usual[number] = value
    first = min(places, default=0)
    merged: list[list[Value]] = []
    for row in rows:
        said = [
            _condition(name, row[number])
            for number, name in places.items()
            if number not in usual or row[number] != usual[number]
        ]
        rest = [value for number, value in enumerate(row) if number not in places]
        merged.append([*rest[:first], " ".join(said) or "as usual", *rest[first:]])
    others = [name for number, name in enumerate(columns) if number not in places]
    names = [*others[:first], WHERE, *others[first:]]
    return names, merged, ", ".join(_condition(places[number], value) for number, value in usual.items())


WHERE = "where"
"""The column that says all axes."""


def _condition(name: str, value: Value) -> str:
    """An axis and its value as ``--where`` takes them."""
    name = name.removeprefix(AXIS_PREFIX)
    return f"{name}=" + ("null" if value is None else human(name, value))


def said_short(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> list[list[Value]]:
    """Rows of jobs as the other tables word them: a cell by six letters, a state set by its preset."""
    return [
        [
            cell6(str(value)) if name == "cell" else axis_value(name, value)
            for name, value in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
