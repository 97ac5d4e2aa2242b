"""Things to know: each check reads the sweep's jobs and says a sentence where there is something to say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from orchestrator.analysis.jobs import MEASURING, Job, JobSet, Value
from orchestrator.render.values import human_bytes as bytes_text
from orchestrator.render.values import human_seconds as seconds_text
from orchestrator.store.figures import DRIFT_LIMIT_SHARE, PAGEABLE_DRIFT_LIMIT_SHARE

Thing = tuple[str, str]
"""A kind (a stable word) and a sentence."""

_PINNING_WORTH_NAMING_S = 0.1
_MOSTLY_COPYING_SHARE = 0.25
_DRIFT_ITERATIONS = 10
LEAK_LIMIT_BYTES = 1 << 20
"""Growth a warm iteration that is called a leak."""


def pairs(jobs: JobSet, axis: str) -> dict[tuple[Value, ...], dict[Value, list[Job]]]:
    """Valid jobs that differ in this axis, or in how they were measured, by all else and then by the axis."""
    others = [name for name in jobs.varying(jobs.measured) if name not in (axis, *MEASURING)]
    groups: dict[tuple[Value, ...], dict[Value, list[Job]]] = {}
    for job in jobs.measured:
        if job.is_valid:
            key = (job.values.get("environment_id"), *(job.values.get(name) for name in others))
            groups.setdefault(key, {}).setdefault(job.values.get(axis), []).append(job)
    return {key: sides for key, sides in groups.items() if len(sides) > 1}


def _middle(jobs: Iterable[Job], column: str) -> float | None:
    values = [value for job in jobs if (value := job.number(column)) is not None]
    return median(values) if values else None


def collection(jobs: JobSet) -> list[Thing]:
    """How much of an offload is Python's garbage collector, from pairs with and without ``gc_freeze``."""
    gains: list[tuple[float, float, float]] = []
    for sides in pairs(jobs, "gc_freeze").values():
        plain, frozen = (_middle(sides.get(side, ()), "offload_s_median") for side in (False, True))
        size = _middle(sides.get(False, ()), "copied_bytes")
        if plain and frozen and size:
            gains.append((size, plain, frozen))
    if not gains:
        return _not_copying(jobs)
    worth = [gain for gain in sorted(gains) if gain[1] - gain[2] > 0.25 * gain[1]]
    if not worth:
        return []
    size, plain, frozen = worth[0]
    hidden = [gain[0] for gain in gains if gain[0] > worth[-1][0]]
    until = f"; from {bytes_text(min(hidden))} on it hides behind the copies" if hidden else ""
    text = (
        f"at {bytes_text(worth[-1][0])} copied and below, much of the offload time is Python's garbage "
        f"collector inside offload_states: at {bytes_text(size)} gc_freeze takes it from "
        f"{seconds_text(plain)} to {seconds_text(frozen)}{until}"
    )
    return [("collection", text)]


def _not_copying(jobs: JobSet) -> list[Thing]:
    """The largest copy to pinned memory of which the link would need less than a quarter of the offload.

    Not of pageable memory: its copies are far from the raw link themselves, since each page is new.
    """
    cells: dict[Value, list[Job]] = {}
    for job in jobs.measured:
        if job.is_pinned and not job.values.get("gc_freeze"):
            cells.setdefault(job.values.get("cell"), []).append(job)
    slow = [
        (size, whole, share)
        for members in cells.values()
        if (size := _middle(members, "copied_bytes"))
        and (whole := _middle(members, "offload_s_median"))
        and (share := _middle(members, "offload_link_share")) is not None
        and share < _MOSTLY_COPYING_SHARE
    ]
    if not slow:
        return []
    size, whole, share = max(slow)
    text = (
        f"most of an offload of {bytes_text(size)} is not copying: it takes {seconds_text(whole)}, the raw "
        f"link {seconds_text(whole * share)}; instrumented: 2 splits the rest, gc_freeze takes Python's "
        "garbage collector out of it"
    )
    return [("not_copying", text)]


def bytes_differ(jobs: JobSet) -> list[Thing]:
    """Jobs that freed other bytes than predicted, those apart that did so in some iterations only."""
    found = [job for job in jobs.jobs if job.values.get("bytes_match") is False]
    some = [job for job in found if _median_matches(job)]
    rest = [job for job in found if job not in some]
    text = "freed other bytes than the formula predicts"
    things = [("bytes_differ", f"{_count(rest)} {text}")] if rest else []
    if some:
        once = f"{_count(some)} {text} in some iteration, though not in the median (--per iteration)"
        things.append(("bytes_differ_once", once))
    return things


def _median_matches(job: Job) -> bool:
    freed, predicted = job.number("freed_bytes"), job.number("predicted_freed_bytes")
    if freed is None or predicted is None:
        return False
    return abs(freed - predicted) <= max(1 << 20, 0.001 * predicted)


def unprobed(jobs: JobSet) -> list[Thing]:
    """Jobs on a device whose raw link nobody measured: their share of it is not known."""
    found = [
        job
        for job in jobs.measured
        if not jobs.on_cpu(job)
        and job.number("copied_bytes")
        and (job.number("link_down_gbps") is None or job.number("link_up_gbps") is None)
    ]
    text = "no share of the link in one direction or both: the device of the slowest rank was not probed"
    return [("unprobed", f"{_count(found)} ha{'s' if len(found) == 1 else 've'} {text}")] if found else []


def cold_pinning(jobs: JobSet) -> list[Thing]:
    """What pinning costs in a process's first offload."""
    costs: dict[str, list[float]] = {}
    for job in jobs.measured:
        cost = job.number("cold_pinning_s")
        if cost is not None and cost >= _PINNING_WORTH_NAMING_S:
            costs.setdefault(str(job.values.get("pin_backend")), []).append(cost)
    if not costs:
        return []
    every = [cost for values in costs.values() for cost in values]
    least, most = min(every), max(every)
    extent = seconds_text(most) if most < 1.05 * least else f"{seconds_text(least)} to {seconds_text(most)}"
    on = ", depending on size and pin_backend" if len(costs) > 1 else ""
    return [("cold_pinning", f"the first offload of a process also pins its buffers: {extent}{on}")]


def pinning_pays(jobs: JobSet) -> list[Thing]:
    """After how many cycles the first offload's pinning is earned back, from pairs with and without it."""
    cycles: list[int] = []
    never: list[float] = []
    for sides in pairs(jobs, "pin_memory").values():
        cost = _middle(sides.get(True, ()), "cold_pinning_s")
        size = _middle(sides.get(True, ()), "copied_bytes")
        pinned, paged = (_cycle_s(sides.get(side, ()), "s_median") for side in (True, False))
        if not cost or cost < _PINNING_WORTH_NAMING_S or not size or pinned is None or paged is None:
            continue
        if paged > pinned:
            # What the first cycle took in both: copies with non_blocking to pageable memory pin, too.
            first, other = (_cycle_s(sides.get(side, ()), "cold_s") for side in (True, False))
            if first is None or other is None:
                first, other = pinned + cost, paged
            cycles.append(1 + max(0, math.ceil((first - other) / (paged - pinned))))
        else:
            never.append(size)
    parts = []
    if cycles:
        least, most = min(cycles), max(cycles)
        count = f"{least} cycle{'s' * (least > 1)}" if least == most else f"{least} to {most} cycles"
        parts.append(f"has paid for itself after {count}")
    if never:
        parts.append(f"never pays at {', '.join(bytes_text(size) for size in sorted(set(never))[:3])}")
    return [("pinning_pays", f"pinning {' and '.join(parts)}")] if parts else []


def _cycle_s(jobs: Iterable[Job], ending: str) -> float | None:
    members = list(jobs)
    offload, reload = (_middle(members, f"{name}_{ending}") for name in ("offload", "reload"))
    return None if offload is None or reload is None else offload + reload


def rounding(jobs: JobSet) -> list[Thing]:
    """Pinned host memory beyond the bytes that were copied."""
    worst: tuple[float, float, float] | None = None
    for job in jobs.measured:
        pinned, copied = job.number("pinned_bytes"), job.number("copied_bytes")
        if pinned and copied and pinned > 1.2 * copied and (worst is None or pinned > worst[1]):
            worst = (pinned / copied, pinned, copied)
    if worst is None:
        return []
    text = (
        f"each pinned buffer is rounded up to a power of two: {bytes_text(worst[1])} of host memory a rank "
        f"for {bytes_text(worst[2])} of states"
    )
    return [("rounding", text)]


def _count(jobs: Sequence[Job]) -> str:
    names = ", ".join(job.name for job in jobs[:4]) + (", …" if len(jobs) > 4 else "")
    return f"{len(jobs)} job{'s' if len(jobs) != 1 else ''} ({names})"


def _flagged(kind: str, text: str, chosen: Callable[[Job], bool]) -> Callable[[JobSet], list[Thing]]:
    def check(jobs: JobSet) -> list[Thing]:
        found = [job for job in jobs.jobs if chosen(job)]
        return [(kind, f"{_count(found)} {text}")] if found else []

    return check


def leaks(jobs: JobSet) -> list[Thing]:
    """Device memory that grows from cycle to cycle; on a CPU the figure is the process's own size."""
    found = [
        job
        for job in jobs.measured
        if (job.number("leak_bytes") or 0.0) > LEAK_LIMIT_BYTES and not jobs.on_cpu(job)
    ]
    return (
        [("leak", f"{_count(found)} held more device memory after each cycle than before it")]
        if found
        else []
    )


def _slows(job: Job) -> bool:
    slope, whole = job.number("offload_drift_s"), job.number("offload_s_median")
    warm = job.number("warm_iterations")
    # The slope through a few noisy iterations is noise.
    enough = warm is not None and warm >= _DRIFT_ITERATIONS
    return bool(job.is_measured and enough and slope and whole and slope * (warm or 0) > 0.1 * whole)


def slowest_rank(jobs: JobSet) -> list[Thing]:
    """One rank that is nearly always the last to have finished."""
    several = [job for job in jobs.measured if (job.number("ranks") or 0) > 1]
    ranks = Counter(job.values.get("offload_slowest_rank") for job in several)
    if len(several) < 4 or not ranks:
        return []
    [(rank, times)] = ranks.most_common(1)
    if rank is None or times < 0.8 * len(several):
        return []
    text = (
        f"rank {rank} is the slowest to offload in {times} of {len(several)} jobs of several ranks: "
        "look at its NUMA node and its link"
    )
    return [("slowest_rank", text)]


def environments(jobs: JobSet) -> list[Thing]:
    """More than one host or software stack in one sweep."""
    used = {job.values.get("environment_id") for job in jobs.measured} - {None}
    if len(used) < 2:
        return []
    text = (
        f"the jobs ran in {len(used)} different environments: no row averages over two of them, "
        "and rows of different ones compare hosts as well as settings"
    )
    return [("environments", text)]


def launch_modes(jobs: JobSet) -> list[Thing]:
    """More than one way of starting ranks in one sweep."""
    modes = Counter(str(mode) for job in jobs.measured if (mode := job.values.get("launch_mode")))
    if len(modes) < 2:
        return []
    text = ", ".join(f"{mode} {count}" for mode, count in modes.most_common())
    return [("launch_modes", f"ranks were started in different ways ({text})")]


def no_device(jobs: JobSet) -> list[Thing]:
    """Jobs on a CPU, where nothing leaves a device."""
    if not any(jobs.on_cpu(job) for job in jobs.measured):
        return []
    text = (
        "on a CPU nothing leaves the device: freed bytes are not applicable, "
        "and the times say nothing about a GPU"
    )
    return [("cpu", text)]


CHECKS: tuple[Callable[[JobSet], list[Thing]], ...] = (
    _flagged(
        "states_changed",
        "came back with changed states: do not trust that combination of settings",
        lambda job: (
            job.values.get("states_intact") is False or job.values.get("failure_kind") == "states_changed"
        ),
    ),
    _flagged(
        "wrong_device",
        "left a state on the wrong device",
        lambda job: job.values.get("devices_ok") is False or job.values.get("failure_kind") == "wrong_device",
    ),
    bytes_differ,
    environments,
    no_device,
    collection,
    cold_pinning,
    pinning_pays,
    rounding,
    _flagged(
        "overlapped",
        "overlapped with other work on the host or device and may be too slow",
        lambda job: "overlapped" in job.flags(),
    ),
    _flagged(
        "probe_drift",
        f"ran while the raw link changed by more than {DRIFT_LIMIT_SHARE:.0%} "
        f"(pageable copies: {PAGEABLE_DRIFT_LIMIT_SHARE:.0%})",
        lambda job: job.link_drifted,
    ),
    _flagged(
        "beyond_link",
        "copied faster than the link was probed, so one of the two is wrong",
        lambda job: job.is_measured and "faster than the link" in job.flags(),
    ),
    unprobed,
    leaks,
    _flagged("slowing", "offloaded more slowly from cycle to cycle", _slows),
    _flagged(
        "skipped_steps",
        "skipped optimizer steps (fp16 overflow), so Adam's states may not have existed",
        lambda job: (job.number("skipped_steps") or 0) > 0,
    ),
    _flagged(
        "unchecked",
        "ran with checksums off: nobody knows whether the states came back",
        lambda job: job.is_measured and job.values.get("checksums") is False,
    ),
    _flagged(
        "no_warm",
        "had no iteration after the warm-up: there is only a cold figure",
        lambda job: job.is_measured and job.values.get("warm_iterations") == 0,
    ),
    slowest_rank,
    launch_modes,
)
"""In the order of what would mislead a reader most."""
