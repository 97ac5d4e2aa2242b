"""Which measured jobs may speak for a cell: the same host, stack and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.fit import MINIMUM_SIZES, SAME_SIZE_SHARE, points_of
from orchestrator.spec.axes import AXES, AXIS_BY_NAME, AxisValue

if TYPE_CHECKING:
    from pandas import DataFrame, Series

STACK = ("node", "accelerator", "gpu_name", "torch", "deepspeed", "driver")
"""What a time depends on: never mixed."""

CHOICES = ("pin_memory", "non_blocking", "reload_non_blocking", "gc_freeze", "pin_backend", "numa")
"""Axes that one chooses; a prediction is made for each combination that was measured."""

SETTING = ("zero_stage", "included_state", *CHOICES, "pin_memory_then", "contention", "hold_bytes")
"""Axes in which a measured job must agree with the cell."""

PREFERRED = ("num_nodes", "num_gpus", "dtype", "optimizer", "ds", "env")
"""Axes in which it should agree: otherwise the nearest is taken, said, and the interval widened."""

SIZE = "size_bytes"
"""Bytes that a rank copied: the column that a curve is fitted over."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs that speak for a cell, and in what they differ from it."""

    jobs: DataFrame
    differs: tuple[str, ...]


def prepared(frame: DataFrame) -> DataFrame:
    """The frame with inactive axes at the default that the worker used, and the column ``SIZE``."""
    import pandas as pd

    ready = frame.copy()
    for axis in AXES:
        if axis.name in ready and axis.default is not None:
            column = ready[axis.name].astype(object)
            ready[axis.name] = column.where(column.notna(), axis.default)
    for name in ("ds", "env"):
        column = ready[name].astype(object)
        ready[name] = column.where(column.notna() & (column != "{}"), "")
    sizes = ready["copied_bytes"].where(ready["copied_bytes"].notna(), ready["predicted_copied_bytes"])
    ready[SIZE] = pd.to_numeric(sizes)
    return ready[ready[SIZE] > 0]


def matching(frame: DataFrame, wanted: Mapping[str, object], names: Sequence[str]) -> DataFrame:
    """Rows whose axes equal the wanted ones; None in a nullable axis equals missing."""
    for name in names:
        frame = frame.loc[_equals(frame[name], wanted[name])]
    return frame


def _equals(column: Series[Any], value: object) -> Series[bool]:
    import pandas as pd

    if pd.isna(value):  # type: ignore[call-overload]
        return column.isna()
    return column == value


def select(frame: DataFrame, wanted: Mapping[str, object], size: float | None = None) -> Selection:
    """The jobs of one host and stack that speak for the wanted axes.

    Args:
        size: bytes copied by a rank; jobs as asked that were measured at it are better than a curve
            through jobs that are not.
    """
    jobs = matching(frame, wanted, SETTING)
    differs = []
    for name in PREFERRED:
        same = matching(jobs, wanted, [name])
        if len(same) == len(jobs) or _sizes(same) >= MINIMUM_SIZES or _holds(same, size):
            jobs = same
            continue
        jobs, taken = _nearest(jobs, name, wanted[name])
        if taken != wanted[name]:
            differs.append(f"{name} as measured at {taken or 'none'}, not {wanted[name] or 'none'}")
    return Selection(jobs, tuple(differs))


def _sizes(jobs: DataFrame) -> int:
    return len(points_of(jobs[SIZE].tolist(), [1.0] * len(jobs)))


def _holds(jobs: DataFrame, size: float | None) -> bool:
    return size is not None and bool(((jobs[SIZE] / size - 1).abs() <= SAME_SIZE_SHARE).any())


def _nearest(jobs: DataFrame, name: str, wanted: object) -> tuple[DataFrame, object]:
    """Jobs of one other value of the axis: measured at enough sizes if any is, then the nearest."""
    groups = {value: jobs[jobs[name] == value] for value in dict.fromkeys(jobs[name])}
    enough = {value: group for value, group in groups.items() if _sizes(group) >= MINIMUM_SIZES}

    def distance(value: object) -> tuple[float, float]:
        if isinstance(value, int | float) and isinstance(wanted, int | float):
            return abs(float(value) - float(wanted)), float(value)
        return float(value != wanted), float(-_sizes(groups[value]))

    best = min(enough or groups, key=distance)
    return groups[best], best


def settings_of(frame: DataFrame) -> list[dict[str, AxisValue]]:
    """The distinct settings of the frame, in the order of first measurement."""
    return [
        {str(name): value for name, value in row.items()}
        for row in frame.loc[:, list(SETTING)].drop_duplicates().to_dict("records")
    ]


def setting_text(wanted: Mapping[str, object]) -> str:
    """``pin_memory=true non_blocking=false``, and every other axis that differs from its built-in default."""
    from orchestrator.analysis.labels import axis_text

    shown = [
        name
        for name in SETTING
        if name in ("pin_memory", "non_blocking") or _differs_from_default(name, wanted[name])
    ]
    return " ".join(f"{name}={axis_text(wanted[name])}" for name in shown)


def _differs_from_default(name: str, value: object) -> bool:
    import pandas as pd

    default = AXIS_BY_NAME[name].default
    is_missing = bool(pd.isna(value))  # type: ignore[call-overload]
    return not (is_missing and default is None) and value != default
