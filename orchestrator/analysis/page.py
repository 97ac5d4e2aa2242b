"""What the HTML report embeds, capped so that the page stays small whatever the sweep's size.

All jobs and all cells are there; iterations and memory samples of a choice of jobs, and the page says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.analysis.contexts import RANKS, SIZE_AXES, Contexts, raw_links
from orchestrator.analysis.jobs import Job, JobSet, Value, axis_text, setting_text
from orchestrator.analysis.report import Report
from orchestrator.analysis.summary import Summary, summarise
from orchestrator.store import queries_report as queries

Json = bool | int | float | str | None | Sequence["Json"] | dict[str, "Json"]

ITERATION_JOBS = 160
"""Jobs whose iterations are embedded, at most."""
MEMORY_JOBS = 24
"""Jobs whose memory samples are embedded, at most."""
MEMORY_POINTS = 400
"""Samples of one of them, at most."""
ITERATIONS = 300
"""Iterations of one job, at most: the first ones, then evenly spaced ones."""
REASON_LETTERS = 200
QUESTIONS = 12
"""Questions (sizes and the like) whose iterations can be chosen, at most."""

JOB_FIGURES = (
    "offload_s_median", "reload_s_median", "offload_cold_s", "reload_cold_s", "offload_gbps", "reload_gbps",
    "offload_link_share", "reload_link_share", "copied_bytes", "freed_bytes", "pinned_bytes",
)  # fmt: skip
_DERIVED = ("offload_gbps", "reload_gbps", "offload_link_share", "reload_link_share")
_OF_A_DEVICE = ("freed_bytes", "offload_gbps", "reload_gbps")
"""On a CPU nothing moves, so there is neither."""
_CELL_FIGURES = (
    "offload_s_median", "reload_s_median", "copied_bytes", "offload_gbps", "reload_gbps",
    "offload_host_s_median", "offload_all_s_median", "reload_host_s_median", "reload_all_s_median",
)  # fmt: skip


def page_data(store: queries.Reads, report: Report) -> dict[str, Json]:
    """Everything that the page's script draws from."""
    jobs = report.jobs
    contexts, varying = Contexts(jobs), jobs.varying(jobs.measured)
    groups = _by_question(jobs, contexts)
    return {
        "iterations_most": ITERATIONS,
        "jobs": _job_columns(jobs),
        "cells": _cells(jobs, contexts),
        "usual": contexts.usual,
        "links": [
            {"kind": kind, "down_gbps": down, "up_gbps": up}
            for kind, (down, up) in raw_links(jobs.measured).items()
        ],
        "iterations": [_iterations(store, contexts, job, varying) for job in iteration_jobs(groups)],
        "splits": _splits(store, groups, varying),
        "memory": [found for job in memory_jobs(groups) if (found := _memory(store, job)) is not None],
    }


def _job_columns(jobs: JobSet) -> dict[str, Json]:
    """All jobs by column: the names of axes that vary, then figures; lists of equal length."""
    axes = [name for name in jobs.varying() if name != "sweep"]
    columns: dict[str, Json] = {
        "job": [job.name for job in jobs.jobs],
        "status": [job.status for job in jobs.jobs],
    }
    figures = frozenset(JOB_FIGURES)
    # The two times that everybody wants come before the axes, so that they are in sight.
    for name in (*JOB_FIGURES[:2], *axes, *JOB_FIGURES[2:]):
        if name not in figures:
            columns[name] = [job.values.get(name) for job in jobs.jobs]
            continue
        values = [_applicable(jobs, job, name) for job in jobs.jobs]
        if any(value is not None for value in values):
            # Times and bytes are the database's own; what is derived from them is shorter.
            columns[name] = [six_digits(value) for value in values] if name in _DERIVED else values
    flags = ["; ".join(job.flags()) for job in jobs.jobs]
    if any(flags):
        columns["flags"] = flags
    reasons = [_reason(job) for job in jobs.jobs]
    if any(reasons):
        columns["reason"] = reasons
    return columns


def _applicable(jobs: JobSet, job: Job, name: str) -> Value:
    """A figure; nothing for one of bytes that move where the job ran on a CPU."""
    return None if name in _OF_A_DEVICE and jobs.on_cpu(job) else job.values.get(name)


def _reason(job: Job) -> str:
    if job.status == "ok":
        return ""
    return str(job.values.get("message") or job.values.get("reason") or "")[:REASON_LETTERS]


def size_text(job: Job, varying: Sequence[str]) -> str:
    """``hidden_dim 8192, num_gpus 2``: the size, as far as it varies."""
    names = [name for name in (*SIZE_AXES, *RANKS) if name in varying]
    known = [axis_text(name, value) for name in names if (value := job.values.get(name)) is not None]
    return ", ".join(known) or "the only size"


def _ranks(job: Job) -> int:
    return int((job.number("num_gpus") or 1) * (job.number("num_nodes") or 1))


def six_digits(value: Value) -> Value:
    """A float to six significant digits: beyond what a plot shows."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _cells(jobs: JobSet, contexts: Contexts) -> dict[str, Json]:
    """All cells by column, lists of equal length."""
    varying = jobs.varying(jobs.measured)
    cells = [
        _cell(contexts, summary, varying)
        for summary in summarise(jobs, (), per_cell=True, metrics=_CELL_FIGURES)
    ]
    return {name: [cell[name] for cell in cells] for name in (cells[0] if cells else ())}


def _cell(contexts: Contexts, summary: Summary, varying: Sequence[str]) -> dict[str, Json]:
    first, metrics = summary.jobs[0], summary.metrics
    cell: dict[str, Json] = {
        "cell": first.cell6,
        "context": contexts.text(first),
        "size": size_text(first, varying),
        "setting": setting_text(first),
        "ranks": _ranks(first),
        "n": len(summary.jobs),
        "flagged": bool(summary.flags),
    }
    for name in _CELL_FIGURES:
        is_known = not (summary.on_cpu and name in _OF_A_DEVICE)
        cell[name] = six_digits(metrics[name].median) if is_known else None
    for name in ("offload_s_median", "reload_s_median"):
        cell[f"{name}_min"] = six_digits(metrics[name].least)
        cell[f"{name}_max"] = six_digits(metrics[name].greatest)
    return cell


Groups = dict[tuple[str, str], list[Job]]


def _by_question(jobs: JobSet, contexts: Contexts) -> Groups:
    """Measured jobs by context and size, the largest copies first."""
    varying = jobs.varying(jobs.measured)
    groups: Groups = {}
    for job in sorted(jobs.measured, key=lambda one: -(one.number("copied_bytes") or 0)):
        groups.setdefault((contexts.text(job), size_text(job, varying)), []).append(job)
    return groups


def iteration_jobs(groups: Groups) -> list[Job]:
    """Jobs whose iterations are shown: up to three repeats of each setting, for the largest questions."""
    chosen: list[Job] = []
    for members in list(groups.values())[:QUESTIONS]:
        counts: dict[str, int] = {}
        for job in members:
            setting = setting_text(job)
            counts[setting] = counts.get(setting, 0) + 1
            if counts[setting] <= 3:
                chosen.append(job)
    return chosen[:ITERATION_JOBS]


def _iterations(
    store: queries.Reads, contexts: Contexts, job: Job, varying: Sequence[str]
) -> dict[str, Json]:
    rows = thinned(queries.slowest_ranks(store, int(str(job.values["attempt_id"]))), ITERATIONS)
    return {
        "job": job.name,
        "question": f"{size_text(job, varying)} · {contexts.text(job)}",
        "setting": setting_text(job),
        "iteration": _column(rows, "iteration"),
        "kind": [_kind(row) for row in rows],
        "offload_s": [six_digits(value) for value in _column(rows, "offload_s")],
        "reload_s": [six_digits(value) for value in _column(rows, "reload_s")],
    }


def thinned(rows: list[dict[str, Value]], most: int) -> list[dict[str, Value]]:
    """At most so many rows: the first tenth of them as it is, then evenly spaced ones."""
    if len(rows) <= most:
        return rows
    head = most // 10
    rest = rows[head:]
    return rows[:head] + [rest[place * len(rest) // (most - head)] for place in range(most - head)]


def _column(rows: Iterable[dict[str, Value]], name: str) -> list[Value]:
    return [row[name] for row in rows]


def _kind(row: dict[str, Value]) -> str:
    if row["is_cold"]:
        return "cold"
    if row["is_instrumented"]:
        return "instrumented"
    return "warm-up" if row["is_warmup"] else "warm"


def memory_jobs(groups: Groups) -> list[Job]:
    """Jobs whose memory is shown: one of each setting at the largest sizes, then whatever failed."""
    chosen: list[Job] = []
    for members in groups.values():
        seen: set[str] = set()
        for job in members:
            if setting_text(job) not in seen:
                seen.add(setting_text(job))
                chosen.append(job)
        if len(chosen) >= MEMORY_JOBS:
            break
    return chosen[:MEMORY_JOBS]


def _memory(store: queries.Reads, job: Job) -> dict[str, Json] | None:
    rank = job.values.get("offload_slowest_rank")
    number = rank if isinstance(rank, int) else 0
    attempt_id = int(str(job.values["attempt_id"]))
    rows = queries.memory_over_time(store, attempt_id, number, MEMORY_POINTS)
    if not rows:
        return None
    series = ("allocated_bytes", "reserved_bytes", "device_used_bytes", "pinned_bytes", "rss_bytes")
    return {
        "job": job.name,
        "rank": number,
        "setting": setting_text(job),
        "is_cut": len(rows) == MEMORY_POINTS,
        "at_s": _column(rows, "at_s"),
        "phase": _column(rows, "phase"),
        "series": {
            name: _column(rows, name) for name in series if any(row[name] is not None for row in rows)
        },
    }


def _splits(store: queries.Reads, groups: Groups, varying: Sequence[str]) -> list[Json]:
    """The parts of the time, of jobs with instrumented iterations, the largest first; no two of one label."""
    split_ones = {
        question: own
        for question, members in groups.items()
        if (own := [job for job in members if job.values.get("instrumented")])
    }
    several = len({context for context, _ in split_ones}) > 1
    found: list[Json] = []
    for (context, _), members in split_ones.items():
        seen: set[str] = set()
        for job in members:
            setting = setting_text(job)
            if setting in seen or len(found) >= MEMORY_JOBS:
                continue
            split = queries.time_split(store, int(str(job.values["attempt_id"])))
            if split:
                seen.add(setting)
                parts: dict[str, Json] = {
                    name: value for name, value in split.items() if name != "iterations"
                }
                where = f", {context}" if several else ""
                found.append({"label": f"{size_text(job, varying)}{where}: {setting}", "parts": parts})
    return found
