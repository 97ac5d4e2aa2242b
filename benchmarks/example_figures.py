"""The example's own loop and orch's sweep, a job each: what their seconds are spent on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import fmean, median
from typing import Any

SETTINGS = list(itertools.product((False, True), repeat=2))


@dataclass(frozen=True, slots=True)
class Example:
    """One command of the example's loop.

    Attributes:
        setting: ``pin_memory`` and ``non_blocking``.
        wall_s: of the command.
        calls_s: what it printed itself, offload and load, times its iterations; steps are not in it.
    """

    setting: tuple[bool, bool]
    wall_s: float
    calls_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What the comparison found: seconds a job, and ratios; None where a side has not run yet.

    Where the settings of the two sides were run differently often, because a run was cut short, each has
    the same weight, and only those that both sides have count.
    """

    example_jobs: int
    example_s_per_job: float | None
    example_calls_s_per_job: float | None
    orch_jobs: int
    orch_s_per_job: float | None
    orch_loop_s_per_job: float | None
    orch_checks_s_per_job: float | None
    orch_overhead_s_per_job: float | None
    orch_before_first_loop_s: float | None
    orch_between_loops_s: float | None
    times_faster: float | None
    times_faster_at_most: float | None
    times_less_overhead: float | None


def figures(
    example: Sequence[Example], jobs: Sequence[dict[str, Any]], began_at: float, wall_s: float
) -> Figures:
    """Both sides, a job each.

    Args:
        jobs: of orch, in the order in which they ran; see ``JOBS`` in ``example_loop``.
        began_at: of orch's sweep, seconds since 1970.
        wall_s: of the sweep, as long as it ran jobs.
    """
    theirs, ours = {one.setting for one in example}, {setting_of(job) for job in jobs}
    counted = (theirs & ours) or (theirs | ours)
    commands = [one for one in example if one.setting in counted]
    measured = [job for job in jobs if setting_of(job) in counted]
    comparable = bool(theirs & ours)
    example_s = _evenly((one.setting, one.wall_s) for one in commands)
    calls_s = _evenly((one.setting, one.calls_s) for one in commands)
    loop_s = _evenly((setting_of(job), job["loop_s"]) for job in measured)
    own_calls_s = _evenly((setting_of(job), job["calls_s"]) for job in measured)
    # What is not loop is the same for each setting: shared out among all jobs that the wall clock holds.
    overhead_s = (wall_s - sum(job["loop_s"] for job in jobs)) / len(jobs) if jobs else None
    orch_s = None if loop_s is None or overhead_s is None else loop_s + overhead_s
    loops = [(seconds(job["timed_from_at"]), seconds(job["timed_to_at"])) for job in jobs]
    between = [after[0] - before[1] for before, after in itertools.pairwise(loops)]
    return Figures(
        example_jobs=len(example),
        example_s_per_job=example_s,
        example_calls_s_per_job=calls_s,
        orch_jobs=len(jobs),
        orch_s_per_job=orch_s,
        orch_loop_s_per_job=loop_s,
        orch_checks_s_per_job=_difference(loop_s, own_calls_s),
        orch_overhead_s_per_job=overhead_s,
        orch_before_first_loop_s=loops[0][0] - began_at if loops else None,
        orch_between_loops_s=median(between) if between else None,
        times_faster=_ratio(example_s, orch_s) if comparable else None,
        times_faster_at_most=_ratio(example_s, loop_s) if comparable else None,
        times_less_overhead=_ratio(_difference(example_s, calls_s), overhead_s) if comparable else None,
    )


def setting_of(job: dict[str, Any]) -> tuple[bool, bool]:
    """``pin_memory`` and ``non_blocking`` of a job of orch."""
    return bool(job["pin_memory"]), bool(job["non_blocking"])


def seconds(at: str) -> float:
    """An instant of the database as seconds since 1970."""
    return datetime.fromisoformat(at).timestamp()


def _evenly(values: Iterable[tuple[tuple[bool, bool], float]]) -> float | None:
    """The mean over settings of each setting's mean; None without a value."""
    by_setting: dict[tuple[bool, bool], list[float]] = {}
    for setting, value in values:
        by_setting.setdefault(setting, []).append(value)
    return fmean(map(fmean, by_setting.values())) if by_setting else None


def _difference(of: float | None, less: float | None) -> float | None:
    return None if of is None or less is None else of - less


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def settings_table(example: Sequence[Example], jobs: Sequence[dict[str, Any]]) -> list[str]:
    """A line a setting: where the seconds of a job go, on either side."""
    heads = ("example", "calls", "rest", "orch", "calls", "checks", "rest")
    lines = ["pin_memory non_blocking " + "".join(f"{head:>9s}" for head in heads)]
    for setting in SETTINGS:
        theirs = [one for one in example if one.setting == setting]
        ours = [job for job in jobs if setting_of(job) == setting]
        if not theirs or not ours:
            continue
        wall_s, calls_s = fmean(one.wall_s for one in theirs), fmean(one.calls_s for one in theirs)
        own_s, loop_s, own_calls_s = (
            fmean(job[name] for job in ours) for name in ("wall_s", "loop_s", "calls_s")
        )
        cost = (wall_s, calls_s, wall_s - calls_s, own_s, own_calls_s, loop_s - own_calls_s, own_s - loop_s)
        lines.append(f"{setting[0]!s:11s}{setting[1]!s:13s}" + "".join(f"{value:9.2f}" for value in cost))
    return lines


def document(
    example: Sequence[Example], jobs: Sequence[dict[str, Any]], found: Figures, asked: tuple[int, int]
) -> dict[str, Any]:
    """What is saved: the figures, how much of what was asked for they rest on, and the example's rows."""
    return {
        **asdict(found),
        "example_jobs_asked": asked[0],
        "orch_jobs_asked": asked[1],
        "cut_short": (len(example), len(jobs)) != asked,
        "example": [asdict(one) for one in example],
    }
