"""Jobs combined: one summary a cell, or a group of axes, and never across environments."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.conditions import nearest
from orchestrator.analysis.jobs import Job, JobSet, Value
from orchestrator.errors import SpecError

HEADLINE_METRICS = (
    "offload_s_median",
    "reload_s_median",
    "offload_cold_s",
    "reload_cold_s",
    "cold_pinning_s",
    "step_s_median",
    "copied_bytes",
    "freed_bytes",
    "device_freed_bytes",
    "pinned_bytes",
    "offload_gbps",
    "reload_gbps",
    "offload_link_share",
    "reload_link_share",
)
"""What a summary holds unless ``--metric`` names something else."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of the jobs' own figures, in the metric's unit; None if no job has one."""

    median: float | None
    least: float | None
    greatest: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The jobs of one cell, or of one group, that ran in one environment."""

    key: tuple[Value, ...]
    """Values of the grouping axes."""
    jobs: tuple[Job, ...]
    environment_id: int | None
    metrics: dict[str, Spread]
    flags: tuple[str, ...]
    on_cpu: bool

    @property
    def cells(self) -> int:
        """How many different cells were combined."""
        return len({job.values["cell"] for job in self.jobs})


def spread(values: Iterable[float | None]) -> Spread:
    """Combine the figures of several jobs; missing ones are left out and counted."""
    present = [value for value in values if value is not None]
    if not present:
        return Spread(None, None, None, 0)
    return Spread(statistics.median(present), min(present), max(present), len(present))


def summarise(jobs: JobSet, axes: Sequence[str], *, per_cell: bool, metrics: Sequence[str]) -> list[Summary]:
    """One summary for each combination of the axes and environment, in running order.

    Args:
        axes: what the key of a summary is made of.
        per_cell: keep cells apart even where these axes are equal.
        metrics: numeric columns of ``job_summary``.
    """
    groups: dict[tuple[Value, ...], list[Job]] = {}
    for job in jobs.measured:
        cell = job.values["cell"] if per_cell else None
        key = (cell, job.values.get("environment_id"), *(job.values.get(name) for name in axes))
        groups.setdefault(key, []).append(job)
    return [_summary(jobs, key, members, metrics) for key, members in groups.items()]


def _summary(jobs: JobSet, key: tuple[Value, ...], members: Sequence[Job], metrics: Sequence[str]) -> Summary:
    environment = key[1]
    return Summary(
        key=key[2:],
        jobs=tuple(members),
        environment_id=environment if isinstance(environment, int) else None,
        metrics={name: spread(job.number(name) for job in members) for name in metrics},
        flags=_flag_texts(members),
        on_cpu=all(jobs.on_cpu(job) for job in members),
    )


def _flag_texts(members: Sequence[Job]) -> tuple[str, ...]:
    counts = Counter(flag for job in members for flag in job.flags())
    whole = len(members)
    return tuple(name if count == whole else f"{name} ({count} of {whole})" for name, count in counts.items())


def checked_columns(
    names: Sequence[str], known: Sequence[str], option: str, others: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The names, split at commas and blanks, each a known column.

    Args:
        others: columns that are known but of no use here, with what to do instead.

    Raises:
        SpecError: one is not known, with what it may have meant.
    """
    chosen = [part for name in names for part in name.replace(",", " ").split()]
    if names and not chosen:
        raise SpecError("it names nothing", option)
    for name in chosen:
        if others and name in others:
            raise SpecError(f"'{name}' does not go here", option, others[name])
        if name not in known:
            raise SpecError(f"'{name}' is unknown", option, nearest(name, known))
    return tuple(dict.fromkeys(chosen))
