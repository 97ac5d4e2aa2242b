"""How do the seconds of an offload or reload grow with the bytes copied?

A form is a shape of the curve; sizes are points (the median of the jobs of that size). Every form is
fitted by relative least squares with coefficients ≥ 0, so none can foretell a negative time, and the
one with the least leave-one-size-out error is taken. Forms with fewer coefficients win a near tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MINIMUM_SIZES = 3
SAME_SIZE_SHARE = 0.01
_NEAR_TIE_SHARE, _NEAR_TIE_LOG = 1.1, 0.002
_LEAST_LOG_ERROR = 0.005  # Clocks and medians are no better than this.
_REWEIGHTINGS, _ROBUST_LOG = 8, 0.05


@dataclass(frozen=True, slots=True)
class Point:
    """One measured size: bytes copied per rank, median seconds, the jobs behind it and their scatter."""

    copied_bytes: float
    seconds: float
    jobs: int
    log_variance: float


@dataclass(frozen=True, slots=True)
class Curve:
    """seconds = max(floor_s, fixed_s + s_per_byte · bytes)."""

    form: str
    fixed_s: float
    s_per_byte: float
    floor_s: float = 0.0

    def at(self, copied_bytes: float) -> float:
        """Seconds at a size."""
        return max(self.floor_s, self.fixed_s + self.s_per_byte * copied_bytes)


@dataclass(frozen=True, slots=True)
class Fit:
    """The chosen curve and how far it may be trusted.

    Attributes:
        log_error: typical error of a left-out size, root mean square of log(predicted / measured).
        job_log_variance: variance of the logarithms of jobs of one size.
    """

    curve: Curve
    points: tuple[Point, ...]
    log_error: float
    job_log_variance: float

    def seconds(self, copied_bytes: float) -> float:
        """Expected seconds at a size."""
        return self.curve.at(copied_bytes)

    def half_width_log(self, widen: float = 1.0, level: float = 0.95) -> float:
        """Half of the interval of log seconds for a new job: left-out error and scatter of jobs."""
        from scipy import stats

        scatter = math.sqrt(self.log_error**2 + self.job_log_variance)
        return float(stats.t.ppf((1 + level) / 2, len(self.points) - 1)) * scatter * widen


Form = Callable[[Vector, Vector], Curve]


def points_of(copied_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[Point, ...]:
    """Jobs gathered by size: sizes within 1 % are one."""
    order = np.argsort(np.asarray(copied_bytes, dtype=float), kind="stable")
    groups: list[list[tuple[float, float]]] = []
    for index in order:
        pair = (float(copied_bytes[index]), float(seconds[index]))
        if groups and pair[0] <= groups[-1][0][0] * (1 + SAME_SIZE_SHARE):
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return tuple(_point(np.array(group)) for group in groups)


def _point(group: Vector) -> Point:
    logs = np.log(group[:, 1])
    variance = float(logs.var(ddof=1)) if len(logs) > 1 else math.nan
    return Point(float(np.median(group[:, 0])), float(np.median(group[:, 1])), len(group), variance)


def fit(points: Sequence[Point], link_bytes_per_s: float | None = None) -> Fit:
    """The best form for at least ``MINIMUM_SIZES`` sizes.

    Args:
        link_bytes_per_s: the measured link, where the copy can reach it; adds forms with that slope, which
            see beyond sizes whose copies still hide behind the collection.
    """
    if len(points) < MINIMUM_SIZES:
        raise ValueError(f"{len(points)} sizes, {MINIMUM_SIZES} are needed")
    sizes = np.array([point.copied_bytes for point in points])
    seconds = np.array([point.seconds for point in points])
    best: tuple[float, Vector, Form] | None = None
    for needed, form in _forms(link_bytes_per_s):
        if len(points) <= needed:
            continue
        errors = _left_out_errors(form, sizes, seconds)
        score = float(np.mean(np.abs(errors)))
        if best is None or score * _NEAR_TIE_SHARE + _NEAR_TIE_LOG < best[0]:
            best = (score, errors, form)
    assert best is not None  # the first form needs one size
    variances = [point.log_variance for point in points if not math.isnan(point.log_variance)]
    return Fit(
        best[2](sizes, seconds),
        tuple(points),
        max(_LEAST_LOG_ERROR, float(np.sqrt(np.mean(best[1] ** 2)))),
        float(np.median(variances)) if variances else 0.0,
    )


def _forms(link_bytes_per_s: float | None) -> list[tuple[int, Form]]:
    """Forms with the number of their coefficients, simplest first."""
    forms: list[tuple[int, Form]] = [(1, _copy)]
    if link_bytes_per_s:
        pace = 1 / link_bytes_per_s
        forms += [
            (1, lambda sizes, seconds: _fixed_and_link(sizes, seconds, pace)),
            (1, lambda sizes, seconds: _floor_or_link(sizes, seconds, pace)),
        ]
    return [*forms, (2, _fixed_and_copy), (2, _floor_or_copy), (3, _floor_or_fixed_and_copy)]


def _left_out_errors(form: Form, sizes: Vector, seconds: Vector) -> Vector:
    """log(predicted / measured) of each size, predicted from the others."""
    errors = []
    for index in range(len(sizes)):
        others = np.arange(len(sizes)) != index
        predicted = form(sizes[others], seconds[others]).at(sizes[index])
        errors.append(math.log(max(predicted, 1e-9) / seconds[index]))
    return np.array(errors)


def _copy(sizes: Vector, seconds: Vector) -> Curve:
    return Curve("copy", 0.0, float(np.median(seconds / sizes)))


def _fixed_and_link(sizes: Vector, seconds: Vector, pace: float) -> Curve:
    return Curve("fixed + link", max(0.0, float(np.median(seconds - pace * sizes))), pace)


def _floor_or_link(sizes: Vector, seconds: Vector, pace: float) -> Curve:
    """The collection or the copy at the link's speed, whichever takes longer."""
    hidden = seconds > 1.15 * pace * sizes
    floor = float(np.median(seconds[hidden])) if hidden.any() else 0.0
    slower = float(np.median(seconds[~hidden] / sizes[~hidden])) if (~hidden).any() else pace
    return Curve("longer of collection and link", 0.0, max(pace, slower), floor)


def _fixed_and_copy(sizes: Vector, seconds: Vector) -> Curve:
    fixed, pace = fit_line(sizes, seconds)
    return Curve("fixed + copy", fixed, pace)


def _floor_or_copy(sizes: Vector, seconds: Vector) -> Curve:
    return _with_floor(sizes, seconds, _copy, 1)


def _floor_or_fixed_and_copy(sizes: Vector, seconds: Vector) -> Curve:
    return _with_floor(sizes, seconds, _fixed_and_copy, 2)


def _with_floor(sizes: Vector, seconds: Vector, line: Form, needed: int) -> Curve:
    """The smallest sizes at a floor, the others on the line: the cut with the least error."""
    best: tuple[float, Curve] | None = None
    for cut in range(1, len(sizes) - needed + 1):
        above = line(sizes[cut:], seconds[cut:])
        floor = float(np.median(seconds[:cut]))
        curve = Curve("longer of collection and " + above.form, above.fixed_s, above.s_per_byte, floor)
        residuals = np.log([curve.at(size) for size in sizes]) - np.log(seconds)
        loss = float(np.sum(np.abs(residuals)))
        if best is None or loss < best[0] - 1e-12:
            best = (loss, curve)
    return best[1] if best else line(sizes, seconds)


def fit_line(sizes: Vector, seconds: Vector) -> tuple[float, float]:
    """Fixed seconds and seconds a byte, both ≥ 0, by relative least squares that outliers do not pull."""
    from scipy import optimize

    scale = float(sizes.max())
    design = np.column_stack([np.ones_like(sizes), sizes / scale]) / seconds[:, None]
    weights = np.ones_like(seconds)
    for _ in range(_REWEIGHTINGS):
        root = np.sqrt(weights)
        (fixed, pace), _ = optimize.nnls(design * root[:, None], root)
        residuals = np.abs(design @ np.array([fixed, pace]) - 1)
        weights = 1 / np.maximum(1.0, residuals / _ROBUST_LOG)
    return float(fixed), float(pace) / scale
