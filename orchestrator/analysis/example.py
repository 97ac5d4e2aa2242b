"""The trial table of DeepSpeed's example: a row a trial, a column for each of its four settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.jobs import Job, JobSet, Value

FOUR_SETTINGS = ((False, False), (False, True), (True, False), (True, True))
"""(pin_memory, non_blocking) in the example's order."""

_SPREAD = ("pin_memory", "non_blocking")


@dataclass(frozen=True, slots=True)
class Trial:
    """One row: the trial's number and the job of each of the four settings, None where there is none."""

    number: int
    jobs: tuple[Job | None, ...]


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """The trials of one size and whatever else was varied."""

    axes: tuple[tuple[str, Value], ...]
    """What tells this table from the others."""
    trials: tuple[Trial, ...]


def example_tables(jobs: JobSet) -> list[ExampleTable]:
    """One table for each combination of the other axes. Every job is in exactly one place of one table."""
    others = [name for name in jobs.varying() if name not in _SPREAD]
    groups: dict[tuple[Value, ...], list[Job]] = {}
    for job in jobs.jobs:
        groups.setdefault(tuple(job.values.get(name) for name in others), []).append(job)
    return [
        ExampleTable(tuple(zip(others, key, strict=True)), _trials(members))
        for key, members in groups.items()
    ]


def _trials(members: Sequence[Job]) -> tuple[Trial, ...]:
    rows: list[tuple[int, list[Job | None]]] = []
    for job in sorted(members, key=lambda one: (int(str(one.values["repeat"])), one.number("position") or 0)):
        number = int(str(job.values["repeat"]))
        # An inactive non_blocking is the API's default, False.
        place = FOUR_SETTINGS.index(
            (bool(job.values.get("pin_memory")), bool(job.values.get("non_blocking")))
        )
        free = next((row for trial, row in rows if trial == number and row[place] is None), None)
        if free is None:
            free = [None] * len(FOUR_SETTINGS)
            rows.append((number, free))
        free[place] = job
    return tuple(Trial(number, tuple(row)) for number, row in sorted(rows, key=lambda pair: pair[0]))


def example_rows(tables: Sequence[ExampleTable]) -> tuple[tuple[str, ...], list[tuple[Value, ...]]]:
    """All tables as one of exact numbers, for CSV and JSON."""
    axes = [name for name, _ in tables[0].axes] if tables else []
    names = [f"pin{int(pin)}_nb{int(blocking)}" for pin, blocking in FOUR_SETTINGS]
    columns = (
        *axes,
        "trial",
        *(f"{name}_{part}" for name in names for part in ("offload_s", "load_s", "status")),
    )
    rows = []
    for table in tables:
        for trial in table.trials:
            figures: list[Value] = []
            for job in trial.jobs:
                measured = job if job is not None and job.is_measured else None
                figures.append(measured.number("offload_s_median") if measured else None)
                figures.append(measured.number("reload_s_median") if measured else None)
                figures.append(job.status if job is not None else None)
            rows.append((*(value for _, value in table.axes), trial.number, *figures))
    return columns, rows
