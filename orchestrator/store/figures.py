"""The figures of one job from its rows: pure, no database. ``job_result`` holds what this returns.

Medians and percentiles are over warm iterations (neither warm-up, nor instrumented, nor the first of the
process) of the maximum over ranks: the slowest rank decides when the engine is asleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from orchestrator.store.clock import parse_utc

Figures = dict[str, Any]

DRIFT_LIMIT_SHARE = 0.10
"""Pinned probes before and after that differ by more: the link was not the same throughout."""

PAGEABLE_DRIFT_LIMIT_SHARE = 0.30
"""The same for pageable ones, which scatter by up to 20 % on an idle host (docs/findings.md, raw link)."""

LINK_LIMIT_SHARE = 1.10
"""Faster than the link by more than this cannot be."""

ITERATION_COLUMNS = (
    "rank iteration is_warmup is_cold is_instrumented step_s offload_s offload_host_s offload_all_s"
    " reload_s reload_host_s reload_all_s freed_bytes predicted_freed_bytes copied_bytes device_freed_bytes"
    " bytes_match states_intact devices_ok allocated_before_bytes peak_reload_bytes pinned_bytes pinning_s"
    " skipped_step"
).split()
"""What of ``iteration`` is needed."""


@dataclass(frozen=True, slots=True)
class IterationFigures:
    """One rank's iteration; see ``schema.sql``."""

    rank: int
    iteration: int
    is_warmup: bool = False
    is_cold: bool = False
    is_instrumented: bool = False
    step_s: float | None = None
    offload_s: float | None = None
    offload_host_s: float | None = None
    offload_all_s: float | None = None
    reload_s: float | None = None
    reload_host_s: float | None = None
    reload_all_s: float | None = None
    freed_bytes: int | None = None
    predicted_freed_bytes: int | None = None
    copied_bytes: int | None = None
    device_freed_bytes: int | None = None
    bytes_match: bool | None = None
    states_intact: bool | None = None
    devices_ok: bool | None = None
    allocated_before_bytes: int | None = None
    peak_reload_bytes: int | None = None
    pinned_bytes: int | None = None
    pinning_s: float | None = None
    skipped_step: bool | None = None

    @property
    def is_warm(self) -> bool:
        """Whether it enters medians."""
        return not (self.is_warmup or self.is_cold or self.is_instrumented)


@dataclass(frozen=True, slots=True)
class Probe:
    """One measurement of a device's link."""

    device_uuid: str
    direction: str
    gbps: float
    devices_at_once: int
    probed_at: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What of the job and its attempt the figures need.

    Attributes:
        device_uuids: one a rank; empty on a CPU.
        contention: copies of the job at once; above 1, overlapping is what is measured.
        probes: of those devices.
        pinned_share: of the copied bytes, those that go to pinned memory in warm iterations; None: not known.
    """

    is_ok: bool
    overlapped: bool | None = None
    contention: int = 1
    device_uuids: Sequence[str | None] = ()
    devices_at_once: int = 1
    timed_from_at: str | None = None
    timed_to_at: str | None = None
    probes: Sequence[Probe] = ()
    pinned_share: float | None = 1.0


def figures(rows: Sequence[IterationFigures], about: Circumstances) -> Figures:
    """The columns of ``job_result`` but the ids; ``rows`` holds one row at least, in any order."""
    # Sums of floats depend on the order, and PostgreSQL promises none.
    rows = sorted(rows, key=lambda row: (row.rank, row.iteration))
    warm = [row for row in rows if row.is_warm]
    found: Figures = {
        "ranks": len({row.rank for row in rows}),
        "warm_iterations": len({row.iteration for row in warm}),
        "step_s_median": middle(slowest(warm, "step_s").values()),
    }
    for way in ("offload", "reload"):
        found |= _way(way, rows, warm)
    found |= _bytes(rows, warm)
    found["cold_pinning_s"] = most(row.pinning_s for row in rows if row.is_cold)
    found["offload_drift_s"] = slope(slowest(warm, "offload_s"))
    found["leak_bytes"] = slope(slowest(warm, "allocated_before_bytes"))
    found["skipped_steps"] = _skipped_steps(rows)
    for flag in ("states_intact", "devices_ok", "bytes_match"):
        found[flag] = every(getattr(row, flag) for row in rows)
    found["overlapped"] = about.overlapped
    found |= _link(found, about)
    found["is_valid"] = _is_valid(found, about)
    return found


def _way(way: str, rows: Sequence[IterationFigures], warm: Sequence[IterationFigures]) -> Figures:
    done = slowest(warm, f"{way}_s")
    cold = slowest([row for row in rows if row.is_cold], f"{way}_s")
    return {
        f"{way}_s_median": middle(done.values()),
        f"{way}_s_p95": percentile(done.values(), 0.95),
        f"{way}_s_min": min(done.values(), default=None),
        f"{way}_s_max": max(done.values(), default=None),
        f"{way}_host_s_median": middle(slowest(warm, f"{way}_host_s").values()),
        f"{way}_all_s_median": middle(slowest(warm, f"{way}_all_s").values()),
        f"{way}_cold_s": max(cold.values(), default=None),
        f"{way}_slowest_rank": slowest_rank(warm, f"{way}_s"),
    }


def _bytes(rows: Sequence[IterationFigures], warm: Sequence[IterationFigures]) -> Figures:
    taken = warm or rows
    least = least_rank(taken, "freed_bytes")
    # Where nothing was freed (a CPU) the expectation is still that of the fullest rank.
    expecting = [row for row in taken if least is None or row.rank == least]
    return {
        "copied_bytes": most(row.copied_bytes for row in taken),
        "freed_bytes": whole(middle(row.freed_bytes for row in taken if row.rank == least)),
        "predicted_freed_bytes": most(row.predicted_freed_bytes for row in expecting),
        "device_freed_bytes": whole(min(_rank_medians(taken, "device_freed_bytes").values(), default=None)),
        "pinned_bytes": most(row.pinned_bytes for row in taken),
        "peak_reload_bytes": most(row.peak_reload_bytes for row in taken),
    }


def slowest(rows: Iterable[IterationFigures], column: str) -> dict[int, float]:
    """Iteration -> maximum over the ranks; iterations without a value are left out."""
    best: dict[int, float] = {}
    for row in rows:
        value = getattr(row, column)
        if value is not None and (row.iteration not in best or value > best[row.iteration]):
            best[row.iteration] = value
    return best


def _rank_medians(rows: Iterable[IterationFigures], column: str) -> dict[int, float]:
    by_rank: dict[int, list[float]] = {}
    for row in rows:
        value = getattr(row, column)
        if value is not None:
            by_rank.setdefault(row.rank, []).append(value)
    return {rank: median(values) for rank, values in by_rank.items()}


def slowest_rank(rows: Iterable[IterationFigures], column: str) -> int | None:
    """The rank with the largest median; the lowest of equals."""
    medians = _rank_medians(rows, column)
    return min(medians, key=lambda rank: (-medians[rank], rank), default=None)


def least_rank(rows: Iterable[IterationFigures], column: str) -> int | None:
    """The rank with the smallest median; the lowest of equals."""
    medians = _rank_medians(rows, column)
    return min(medians, key=lambda rank: (medians[rank], rank), default=None)


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is there."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def percentile(values: Iterable[float], share: float) -> float | None:
    """Linear between the two nearest ranks, as numpy's default."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:  # also two infinities, whose difference is not a number
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def slope(values: Mapping[int, float]) -> float | None:
    """Least-squares slope an iteration; None below two points or if one is infinite."""
    values = dict(sorted(values.items()))
    if len(values) < 2 or not all(math.isfinite(value) for value in values.values()):
        return None
    x_mean = sum(values) / len(values)
    y_mean = sum(values.values()) / len(values)
    spread = sum((x - x_mean) ** 2 for x in values)
    return sum((x - x_mean) * (y - y_mean) for x, y in values.items()) / spread


def most(values: Iterable[Any]) -> Any:
    """The largest of what is there."""
    return max((value for value in values if value is not None), default=None)


def whole(value: float | None) -> int | None:
    """A byte count from a median of an even number of them."""
    return None if value is None else round(value)


def every(flags: Iterable[bool | None]) -> bool | None:
    """False if one is False, else True if one is True, else None: not checked."""
    known = [flag for flag in flags if flag is not None]
    return all(known) if known else None


def _skipped_steps(rows: Sequence[IterationFigures]) -> int | None:
    if all(row.skipped_step is None for row in rows):
        return None
    return len({row.iteration for row in rows if row.skipped_step})


def _link(found: Figures, about: Circumstances) -> Figures:
    link: Figures = {}
    drifts = []
    for way, direction in (("offload", "down"), ("reload", "up")):
        seconds, copied = found[f"{way}_s_median"], found["copied_bytes"]
        # Without a device nothing goes over a link, whatever DeepSpeed does with the states.
        moves = any(about.device_uuids)
        speed = copied / seconds / 1e9 if moves and copied is not None and seconds else None
        probe, drift = around(direction, found[f"{way}_slowest_rank"], about)
        drifts.append(drift)
        link[f"{way}_gbps"] = speed
        link[f"link_{direction}_gbps"] = probe
        link[f"{way}_link_share"] = speed / probe if speed is not None and probe else None
    link["probe_drift_share"] = most(drifts)
    return link


def around(direction: str, rank: int | None, about: Circumstances) -> tuple[float | None, float | None]:
    """Speed of the link of the slowest rank's device, GB/s, and how it differs before and after the job.

    The mean of the nearest probe before the timed section and the nearest after it; with one of them
    alone, that one and no difference. Where a part of the bytes is pinned and the rest pageable, the speed
    at which one after the other goes over, and the greater of the two differences.
    """
    share = about.pinned_share
    if share is None or rank is None or rank >= len(about.device_uuids) or about.timed_from_at is None:
        return None, None
    parts = [(part, pinned) for part, pinned in ((share, True), (1.0 - share, False)) if part]
    found = [(part, *_nearest(direction, pinned, about.device_uuids[rank], about)) for part, pinned in parts]
    speeds = [(part, speed) for part, speed, _ in found if speed]
    if len(speeds) < len(found):
        return None, None
    return 1.0 / sum(part / speed for part, speed in speeds), most(drift for _, _, drift in found)


def _nearest(
    direction: str, pinned: bool, device: str | None, about: Circumstances
) -> tuple[float | None, float | None]:
    kind = (device, direction, pinned)
    mine = [p for p in about.probes if (p.device_uuid, p.direction, p.pinned) == kind]
    mine = _as_many_at_once(mine, about.devices_at_once)
    begin = parse_utc(about.timed_from_at or "")
    finish = parse_utc(about.timed_to_at) if about.timed_to_at else begin
    timed: Callable[[Probe], Any] = lambda probe: parse_utc(probe.probed_at)  # noqa: E731
    before = max((p for p in mine if timed(p) <= begin), key=timed, default=None)
    after = min((p for p in mine if timed(p) >= finish), key=timed, default=None)
    if before is not None and after is not None:
        mean = (before.gbps + after.gbps) / 2
        return mean, (abs(after.gbps - before.gbps) / mean if mean else None)
    one = before or after
    return (one.gbps if one else None), None


def drift_limit_share(pinned: bool) -> float:
    """How far the probes around a job may differ, as its copies are pinned or not."""
    return DRIFT_LIMIT_SHARE if pinned else PAGEABLE_DRIFT_LIMIT_SHARE


def _as_many_at_once(probes: list[Probe], wanted: int) -> list[Probe]:
    """The probes with as many devices copying at once as the job has on a host, else the next fewer."""
    counts = {probe.devices_at_once for probe in probes}
    fewer = [count for count in counts if count <= wanted]
    best = max(fewer) if fewer else min(counts, default=0)
    return [probe for probe in probes if probe.devices_at_once == best]


def _is_valid(found: Figures, about: Circumstances) -> bool:
    if not about.is_ok or any(
        found[flag] is False for flag in ("states_intact", "devices_ok", "bytes_match")
    ):
        return False
    if about.overlapped and about.contention <= 1:
        return False
    if (found["probe_drift_share"] or 0.0) > drift_limit_share(about.pinned_share == 1.0):
        return False
    shares = (found["offload_link_share"], found["reload_link_share"])
    return all(share is None or share <= LINK_LIMIT_SHARE for share in shares)
