"""The report's sentences: the best setting, where it ran, which jobs gave nothing and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from orchestrator.analysis.answers import Best
from orchestrator.analysis.contexts import letter
from orchestrator.analysis.jobs import Job, JobSet, Value, axis_text
from orchestrator.analysis.report import Report
from orchestrator.render.values import human_bytes, human_seconds
from orchestrator.spec.axes import AXIS_BY_NAME

_HOW_TO_READ = (
    "offload, reload: until the slowest rank's device is idle, median of a job's warm iterations; over "
    "several jobs their median (min–max). cold: the first iteration of the process."
)
_OF_LINK = " of link: copied bytes by the time, over the raw link as probed, down / up."


def how_to_read(report: Report) -> str:
    """What the columns mean."""
    probed = any(job.number("offload_link_share") is not None for job in report.jobs.measured)
    return _HOW_TO_READ + (_OF_LINK if probed else "")


def best_lines(report: Report) -> list[str]:
    """The best setting for the largest copy, one line an environment, and where another one wins."""
    lines = []
    for best in report.answers.largest:
        several = len(report.answers.largest) > 1
        where = f" [{environment_letter(report.jobs, best.environment_id)}]" if several else ""
        lines.append(f"{best_title(best)}{where}: {best_text(best, on_cpu=_is_cpu(report, best))}")
        if memory := _memory_text(report, best):
            lines.append(f"  {memory}")
        if best.flagged_faster:
            lines.append(f"  faster, but flagged and so left out: {', '.join(best.flagged_faster)}")
        if best.as_good:
            lines.append(f"  its jobs' times overlap with: {'; '.join(best.as_good[:4])}")
        elif best.settings > 1 and best.jobs == 1:
            lines.append("  one job of it: only repeats can tell whether that is chance")
        same = [b for b in report.answers.best if b.environment_id == best.environment_id and b.settings > 1]
        winners = Counter(b.setting for b in same)
        if len(winners) > 1:
            named = winners.most_common(3)
            rest = "; ".join(f"{name} ({count})" for name, count in named)
            if others := len(same) - sum(count for _, count in named):
                rest += f"; others ({others})"
            lines.append(f"  the fastest in {len(same)} comparisons: {rest}")
    return lines or ["no valid job to name a best setting from" + _all_flagged(report.jobs)]


def _all_flagged(jobs: JobSet) -> str:
    """Where every job with figures carries a flag: which ones."""
    flags = [job.flags() for job in jobs.measured]
    if not flags or not all(flags):
        return ""
    names = ", ".join(dict.fromkeys(flag for found in flags for flag in found))
    every = "the only one with figures carries" if len(flags) == 1 else f"all {len(flags)} with figures carry"
    return f": {every} a flag ({names})"


def _memory_text(report: Report, best: Best) -> str:
    """``frees 35.4 GB a GPU · pins 68.7 GB a rank (137 of 256 GB host memory)``."""
    environment = report.jobs.environments.get(best.environment_id or -1, {})
    parts = []
    if best.freed_bytes is not None and environment.get("accelerator") != "cpu":
        parts.append(f"frees {human_bytes(best.freed_bytes)} a GPU")
    if best.pinned_bytes and best.pinned_bytes >= 1000:  # a few bytes are the optimizer's own flags
        ram = environment.get("ram_bytes")
        whole = human_bytes(best.pinned_bytes * best.ranks_a_node)
        of = f" ({whole} of {human_bytes(ram)} host memory)" if isinstance(ram, (int, float)) else ""
        parts.append(f"pins {human_bytes(best.pinned_bytes)} a rank{of}")
    return " · ".join(parts)


def best_title(best: Best) -> str:
    """What its line is called: the best of several settings, or the only one with valid figures."""
    return "best setting" if best.settings > 1 else "only valid setting"


def percent(share: float) -> str:
    """A share without its sign: ``97``, and ``<1`` for what is not nothing."""
    return "<1" if 0 < share < 0.01 else f"{share * 100:.0f}"


def size_text(best: Best, *, on_cpu: bool) -> str:
    """``34.4 GB copied a rank``; on a CPU the states stay where they are. Empty if not known."""
    if best.copied_bytes is None:
        return ""
    return f"{human_bytes(best.copied_bytes)} {'of states' if on_cpu else 'copied'} a rank"


def _is_cpu(report: Report, best: Best) -> bool:
    return report.jobs.environments.get(best.environment_id or -1, {}).get("accelerator") == "cpu"


def best_text(best: Best, *, on_cpu: bool = False) -> str:
    """``pin_memory → asleep in 0.64 s, awake in 0.71 s at 34.4 GB copied a rank (97 / 88 % of the link)``."""
    times = f"asleep in {human_seconds(best.offload_s)}, awake in {human_seconds(best.reload_s)}"
    text = f"{best.setting} → {times}"
    if size := size_text(best, on_cpu=on_cpu):
        text += f" at {size}"
    if best.offload_link_share is not None and best.reload_link_share is not None:
        text += f" ({percent(best.offload_link_share)} / {percent(best.reload_link_share)} % of the link)"
    asked = [axis_text(name, value) for name, value in best.question if value is not None]
    return text + (f", {', '.join(asked[:6])}" if asked else "")


def environment_letter(jobs: JobSet, environment_id: int | None) -> str:
    """A, B, … for the environments of the sweep, in the order of their ids."""
    order = sorted(jobs.environments)
    if environment_id not in order:
        return "?"
    return letter(order.index(environment_id))


def environment_text(environment: Mapping[str, Value]) -> str:
    """``node-a · 4 × NVIDIA H200 · PCIe gen 5 ×16 · driver 580.159 · torch 2.11.0 · deepspeed 0.19.8``."""
    parts = [str(environment["host"])]
    if environment.get("gpu_name"):
        parts.append(f"{environment.get('gpu_count') or 1} × {environment['gpu_name']}")
    elif environment.get("accelerator") == "cpu":
        parts.append(f"CPU only ({environment.get('cpu_name') or 'unknown CPU'})")
    if environment.get("pcie_generation"):
        parts.append(f"PCIe gen {environment['pcie_generation']} ×{environment.get('pcie_width') or '?'}")
    for name in ("driver", "torch", "deepspeed"):
        if environment.get(name):
            parts.append(f"{name} {environment[name]}")
    return " · ".join(parts)


def caption_lines(report: Report) -> list[str]:
    """What the jobs have in common: the sweep, its counts, the environment, the axes that do not vary."""
    jobs = report.jobs
    counts = Counter(job.status for job in jobs.jobs)
    counted = ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=_ok_first))
    chosen = f" where {' and '.join(jobs.where)}" if jobs.where else ""
    count = f"{len(jobs.jobs)} job{'s' * (len(jobs.jobs) != 1)}"
    lines = [f"{jobs.sweep.name}{chosen}: {count}" + (f" ({counted})" if counted else "")]
    lines += jobs.why_none
    if not jobs.jobs:
        return lines
    several = len(jobs.environments) > 1
    for environment_id, environment in sorted(jobs.environments.items()):
        letter = f"environment {environment_letter(jobs, environment_id)}: " if several else ""
        lines.append(letter + environment_text(environment))
    fixed = [axis_text(name, value) for name, value in report.constants if _worth_naming(name, value)]
    if fixed:
        lines.append("in every row: " + ", ".join(fixed) + "; every other axis at its default")
    return lines


def _ok_first(item: tuple[str, int]) -> tuple[bool, str]:
    return item[0] != "ok", item[0]


_ALWAYS_NAMED = (
    "model",
    "hidden_dim",
    "nlayers",
    "dtype",
    "zero_stage",
    "num_gpus",
    "included_state",
    "pin_memory",
    "non_blocking",
)


def _worth_naming(name: str, value: Value) -> bool:
    if name in AXIS_BY_NAME:
        return name in _ALWAYS_NAMED or value != AXIS_BY_NAME[name].default
    return value is not None


def trouble_lines(report: Report) -> list[str]:
    """Jobs without figures; those with one reason share a line. Every job is named or counted."""
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for job in report.troubles:
        kind = str(job.values.get("failure_kind") or "")
        reason = str(job.values.get("message") or job.values.get("reason") or "no reason recorded")
        groups.setdefault((job.status, kind, reason), []).append(job)
    lines = []
    for (status, kind, reason), members in groups.items():
        names = ", ".join(job.name for job in members[:6])
        more = f" and {len(members) - 6} more" if len(members) > 6 else ""
        shown = f"{status} ({kind})" if kind and kind != status else status
        special = _special_axes(report, members)
        hint = "" if status == "skipped" else f" · orch logs {report.addresses[members[0].job_id]}"
        lines.append(f"{shown}: {names}{more}{special}: {reason}{hint}")
    return lines


_ENDED_FROM_OUTSIDE = ("cancelled", "lost", "skipped")


def _special_axes(report: Report, members: Sequence[Job]) -> str:
    """The axes in which these jobs are unlike every measured one, else two that are so together."""
    measured = report.jobs.measured
    names = [n for n in report.jobs.varying() if len({job.values.get(n) for job in members}) == 1]
    own = members[0].values
    alone = [n for n in names if all(job.values.get(n) != own.get(n) for job in measured)]
    if not alone and members[0].status not in _ENDED_FROM_OUTSIDE:
        alone = next(
            (
                list(pair)
                for pair in combinations(names, 2)
                if all(any(job.values.get(n) != own.get(n) for n in pair) for job in measured)
            ),
            [],
        )
    return f" ({', '.join(axis_text(n, own.get(n)) for n in alone[:3])})" if alone and measured else ""


def waiting_line(report: Report) -> str | None:
    """How many jobs have not ended; None if all have."""
    if not report.waiting:
        return None
    counts = Counter(job.status for job in report.waiting)
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"not ended yet: {text} · orch status {report.jobs.sweep.name}"


def mixed_line(report: Report) -> str | None:
    """A warning if a row combines different cells."""
    if not report.mixed:
        return None
    names = ", ".join(report.mixed)
    return f"warning: rows combine jobs that differ in {names}; add them to --by to keep them apart"
