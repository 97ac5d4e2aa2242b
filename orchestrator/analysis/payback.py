"""When has pinning paid?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.analysis import measured
from orchestrator.analysis.estimate import METRICS, estimate, stretch_of
from orchestrator.analysis.fit import points_of
from orchestrator.analysis.measured import CHOICES, SETTING, SIZE
from orchestrator.spec.bytes import predict_values

if TYPE_CHECKING:
    from pandas import DataFrame

    from orchestrator.spec.axes import AxisValue
    from orchestrator.spec.models import ModelShape

_WORTH_BYTES = 1_000_000
"""Jobs that pin less pin only the optimizer's own flags."""


@dataclass(frozen=True, slots=True)
class Payback:
    """When pinning has paid. ``cycles`` None = never; ``against`` names the unpinned setting.

    ``against_pinning_s`` is what torch pins there unasked (copies with ``non_blocking``).
    """

    cold_pinning_s: float
    gain_s: float
    cycles: int | None
    against: str
    against_pinning_s: float


def payback_of(
    stack: DataFrame, wanted: Mapping[str, object], values: Mapping[str, AxisValue],
    ds: Mapping[str, object], shape: ModelShape | None, size: float,
) -> Payback | None:  # fmt: skip
    """None where pinning, its cost, or an unpinned setting was not measured.

    Against the setting that differs in ``pin_memory`` alone, else against the fastest unpinned one.
    """
    pinned_bytes = predict_values(dict(values), ds, shape).pinned_bytes
    if not wanted["pin_memory"] or not pinned_bytes:
        return None
    costs = measured.matching(stack, wanted, ["pin_memory", "pin_backend", "zero_stage"])
    cost, cycle = _pinning_s(costs, pinned_bytes), _cycle_s(stack, wanted, size)
    if cost is None or cycle is None:
        return None
    found = [
        (both, choices)
        for choices in _unpinned(stack, wanted)
        if (both := _cycle_s(stack, {**wanted, **choices}, size))
    ]
    if not found:
        return None
    twin = {**wanted, "pin_memory": False, "pin_backend": "default"}
    of_twin = [one for one in found if _same(one[1], twin)]
    other, choices = min(of_twin or found, key=lambda one: one[0])
    unpinned = {**wanted, **choices}
    own_bytes = predict_values({**values, **choices}, ds, shape).pinned_bytes or 0
    own = _pinning_s(measured.select(stack, unpinned, size).jobs, own_bytes) or 0.0
    gain = other - cycle
    cycles = max(1, math.ceil((cost - own) / gain)) if gain > 0 else None
    return Payback(cost, gain, cycles, measured.setting_text(unpinned), own)


def _unpinned(stack: DataFrame, wanted: Mapping[str, object]) -> Sequence[dict[str, AxisValue]]:
    """The choices of the measured settings that pin nothing and are otherwise as asked."""
    fixed = [name for name in SETTING if name not in CHOICES]
    plain = measured.matching(stack, {**wanted, "pin_memory": False}, [*fixed, "pin_memory"])
    return [{name: one[name] for name in CHOICES} for one in measured.settings_of(plain)]


def _same(choices: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Whether they choose the same; a missing value is none, however it is written."""
    import pandas as pd

    def plain(value: object) -> object:
        return None if pd.isna(value) else value  # type: ignore[call-overload]

    return all(plain(value) == plain(wanted[name]) for name, value in choices.items())


def _pinning_s(jobs: DataFrame, pinned_bytes: int) -> float | None:
    """Seconds to pin so many bytes at the pace of these jobs; None where none of them pinned."""
    costs = jobs[jobs["cold_pinning_s"].notna() & (jobs["pinned_bytes"] > _WORTH_BYTES)]
    if costs.empty:
        return None
    pace = costs["cold_pinning_s"].astype(float) / costs["pinned_bytes"].astype(float)
    return float(pace.median()) * pinned_bytes


def _cycle_s(stack: DataFrame, wanted: Mapping[str, object], size: float) -> float | None:
    """Seconds of an offload and a reload; None where they were not measured so that they can be foretold."""
    jobs = measured.select(stack, wanted, size).jobs
    if jobs.empty:
        return None
    points = points_of(jobs[SIZE].tolist(), [1.0] * len(jobs))
    times = [estimate(jobs, call, size, 1.0) for call in METRICS]
    if stretch_of(size, points)[0] or None in times:
        return None
    return sum(time.seconds for time in times if time is not None)
