"""What ``orch report`` says: its request, and the data from which every format is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.answers import Answers, answer
from orchestrator.analysis.jobs import AXIS_ORDER, Job, JobSet, Value, load_jobs
from orchestrator.analysis.summary import HEADLINE_METRICS, Summary, checked_columns, summarise
from orchestrator.errors import SpecError
from orchestrator.store import queries_report as queries
from orchestrator.store.addresses import addresses

_WAITING = ("pending", "running")


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What is asked for.

    Attributes:
        sweep: its name; None = the latest.
        by: axes to group by; empty = a row a cell.
        metrics: columns of ``job_summary`` to show instead of the headline ones.
        where: conditions that a job must satisfy.
    """

    sweep: str | None = None
    by: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The data of a report."""

    jobs: JobSet
    by: tuple[str, ...]
    """The grouping axes asked for; empty = a row a cell."""
    metrics: tuple[str, ...]
    """The metrics asked for; empty = the headline ones."""
    axes: tuple[str, ...]
    """Axes that differ between the summaries: columns."""
    constants: tuple[tuple[str, Value], ...]
    """Axes that do not, named once."""
    summaries: tuple[Summary, ...]
    troubles: tuple[Job, ...]
    """Jobs that ended without figures."""
    waiting: tuple[Job, ...]
    """Jobs that have not ended."""
    mixed: tuple[str, ...]
    """Axes over which a group was averaged although they differ within it."""
    answers: Answers
    addresses: Mapping[int, str]
    """For each job without figures: what commands take for it alone."""


def build_report(store: queries.Reads, request: ReportRequest) -> Report:
    """Read the sweep and work out everything but the text.

    Raises:
        SpecError: no such sweep, axis, metric or condition.
    """
    jobs = load_jobs(store, request.sweep, request.where)
    by = checked_columns(request.by, jobs.axes, "--by", _not_for_groups(jobs))
    axes = dict.fromkeys(jobs.axes, "it is an axis: --by groups by it, --where chooses")
    metrics = checked_columns(request.metrics, jobs.columns, "--metric", axes)
    for name in metrics:
        if any(isinstance(job.values.get(name), str) for job in jobs.jobs):
            raise SpecError(f"'{name}' is no number", "--metric")
    varying = by or jobs.varying(jobs.measured)
    summaries = summarise(jobs, varying, per_cell=not by, metrics=metrics or HEADLINE_METRICS)
    apart = [name for name in jobs.varying(jobs.measured) if name not in varying]
    mixed = tuple(name for name in apart if any(_differs(summary, name) for summary in summaries))
    troubles = tuple(job for job in jobs.jobs if not job.is_measured and job.status not in _WAITING)
    return Report(
        jobs=jobs,
        by=by,
        metrics=metrics,
        axes=varying,
        constants=constants(jobs, jobs.measured or jobs.jobs),
        summaries=tuple(summaries),
        troubles=troubles,
        waiting=tuple(job for job in jobs.jobs if job.status in _WAITING),
        mixed=mixed,
        answers=answer(jobs),
        addresses=addresses(store, (job.job_id for job in troubles)),
    )


def _not_for_groups(jobs: JobSet) -> dict[str, str]:
    """Columns that are no axes, with what to do instead of grouping by them."""
    others = dict.fromkeys(set(jobs.columns) - set(jobs.axes), "it is no axis; --metric shows it")
    return others | {"cell": "a row a cell is what there is without --by", "status": "see: orch status"}


def _differs(summary: Summary, name: str) -> bool:
    return len({job.values.get(name) for job in summary.jobs}) > 1


def constants(jobs: JobSet, among: Sequence[Job]) -> tuple[tuple[str, Value], ...]:
    """The axes that have one value among these jobs, with it."""
    if not among:
        return ()
    varying = set(jobs.varying(among))
    return tuple((name, among[0].values.get(name)) for name in jobs.axes if name not in varying)


_JOB_FIRST = (
    "sweep",
    "job_id",
    "uid",
    "cell",
    "repeat",
    "status",
    "failure_kind",
    "message",
    "reason",
)
_JOB_LEFT_OUT = frozenset({"sweep_id", "position", "created_at", "updated_at", "ds", "env", "ended_at"})


def job_table(report: Report) -> tuple[tuple[str, ...], Iterator[tuple[Value, ...]]]:
    """A row a job, whatever its status: identity, every axis, every figure (or the metrics asked for)."""
    dotted = [name for name in report.jobs.axes if name not in AXIS_ORDER]
    first = [*_JOB_FIRST, *(name for name in (*AXIS_ORDER, *dotted))]
    rest = report.metrics or [
        name for name in report.jobs.columns if name not in first and name not in _JOB_LEFT_OUT
    ]
    columns = (*first, *rest)
    return columns, (tuple(job.values.get(name) for name in columns) for job in report.jobs.jobs)


AXIS_PREFIX = "axis_"
"""Before the name of an axis whose column would else have another one's name."""


def iteration_table(
    store: queries.Reads, report: Report
) -> tuple[tuple[str, ...], Iterator[tuple[Value, ...]]]:
    """A row an iteration, rank and attempt of the report's jobs, with the axes that vary; streamed."""
    columns, rows = queries.iteration_rows(store, report.jobs.sweep.sweep_id)
    chosen = {job.values["job_id"]: job for job in report.jobs.jobs}
    varying = report.by or report.jobs.varying()
    keep = [n for n, name in enumerate(columns) if not report.metrics or name in (*_KEYS, *report.metrics)]
    place = columns.index("job_id")

    def merged() -> Iterable[tuple[Value, ...]]:
        for row in rows:
            job = chosen.get(row[place])
            if job is not None:
                yield (*(job.values.get(name) for name in varying), *(row[number] for number in keep))

    # An axis and a column may share a name ("iteration" is both): the axis gets a prefix.
    taken = set(columns)
    axes = [f"{AXIS_PREFIX}{name}" if name in taken else name for name in varying]
    return (*axes, *(columns[number] for number in keep)), iter(merged())


_KEYS = (
    "cell",
    "job_id",
    "repeat",
    "attempt",
    "rank",
    "iteration",
    "is_warmup",
    "is_cold",
    "is_instrumented",
)


def summary_table(report: Report) -> tuple[tuple[str, ...], list[tuple[Value, ...]]]:
    """A row a summary with exact numbers: median, least and greatest of the jobs' figures."""
    metrics: Sequence[str] = report.metrics or HEADLINE_METRICS
    columns = [
        "sweep",
        *([] if report.by else ["cell"]),
        "environment_id",
        *report.axes,
        "jobs",
        "cells",
        "flags",
        *(f"{name}{end}" for name in metrics for end in ("", "_min", "_max")),
    ]
    rows: list[tuple[Value, ...]] = []
    for summary in report.summaries:
        figures = [
            value
            for found in (summary.metrics[name] for name in metrics)
            for value in (found.median, found.least, found.greatest)
        ]
        cell = [] if report.by else [summary.jobs[0].values["cell"]]
        rows.append(
            (
                report.jobs.sweep.name,
                *cell,
                summary.environment_id,
                *summary.key,
                len(summary.jobs),
                summary.cells,
                "; ".join(summary.flags),
                *(_whole(figure) for figure in figures),
            )
        )
    return tuple(columns), rows


def _whole(value: float | None) -> float | int | None:
    return int(value) if value is not None and value.is_integer() and abs(value) >= 1000 else value
