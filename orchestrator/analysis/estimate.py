"""Seconds of one call at a size, from the measured jobs that may speak for it, and how far they reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.analysis.fit import MINIMUM_SIZES, SAME_SIZE_SHARE, Point, fit, points_of
from orchestrator.analysis.measured import SIZE
from orchestrator.render.values import human_bytes

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_EXTRAPOLATION = 4.0
"""No prediction beyond this many times the measured range; up to it the interval widens by as much."""

METRICS = {"offload": ("offload_s_median", "link_down_gbps"), "reload": ("reload_s_median", "link_up_gbps")}


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Seconds of one call, with the interval that holds a new job's median 19 times in 20.

    ``form`` and ``sizes`` say what curve over how many measured sizes; ``gbps`` and ``link_share`` follow.
    """

    seconds: float
    low_s: float
    high_s: float
    form: str
    sizes: int
    jobs: int
    gbps: float
    link_share: float | None


def stretch_of(size: float, points: Sequence[Point]) -> tuple[str, float]:
    """Why this size cannot be answered (empty if it can), and how far it is outside the measured range."""
    least, most = points[0].copied_bytes, points[-1].copied_bytes
    is_measured = any(abs(size / p.copied_bytes - 1) <= SAME_SIZE_SHARE for p in points)
    if len(points) < MINIMUM_SIZES and not is_measured:
        count = f"{len(points)} size{'s' * (len(points) > 1)} only ({range_text(points)})"
        return f"measured at {count}, {MINIMUM_SIZES} are needed: sweep this setting over hidden_dim", 1.0
    stretch = max(1.0, size / most, least / size)
    if stretch > MOST_EXTRAPOLATION:
        far = f"{human_bytes(size)} copied is {stretch:.3g} times beyond the measured {range_text(points)}"
        return f"{far}; at most {MOST_EXTRAPOLATION:g} times is foretold: measure nearer", stretch
    return "", stretch


def range_text(points: Sequence[Point]) -> str:
    """``537 MB … 34.4 GB``: the measured sizes."""
    least, most = human_bytes(points[0].copied_bytes), human_bytes(points[-1].copied_bytes)
    return least if len(points) == 1 else f"{least} … {most}"


def estimate(jobs: DataFrame, call: str, size: float, widen: float) -> TimeEstimate | None:
    """None where no job has that metric."""
    metric, link_column = METRICS[call]
    known = jobs[jobs[metric].notna()]
    if known.empty:
        return None
    points = points_of(known[SIZE].tolist(), known[metric].astype(float).tolist())
    link = known[link_column].dropna().astype(float)
    link_bytes_per_s = float(link.median()) * 1e9 if len(link) else None
    if len(points) < MINIMUM_SIZES:
        point = min(points, key=lambda p: abs(math.log(p.copied_bytes / size)))
        scatter = 0.1 if math.isnan(point.log_variance) else max(0.02, 2 * math.sqrt(point.log_variance))
        seconds, half, form = point.seconds, scatter * widen, "as measured"
    else:
        curve = fit(points, link_bytes_per_s if bool(known["pin_memory"].iloc[0]) else None)
        seconds, half, form = curve.seconds(size), curve.half_width_log(widen), curve.curve.form
    return TimeEstimate(
        seconds,
        seconds * math.exp(-half),
        seconds * math.exp(half),
        form,
        len(points),
        len(known),
        size / seconds / 1e9,
        size / seconds / link_bytes_per_s if link_bytes_per_s else None,
    )
