"""How long will a sweep take, judged by the jobs that this database has seen?"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.spec.bytes import predict
from orchestrator.spec.options import LocalOptions
from orchestrator.store.queries_stats import wall_times

if TYPE_CHECKING:
    from pandas import DataFrame

    from orchestrator.spec.cell import Cell
    from orchestrator.spec.plan import Plan
    from orchestrator.store.queries_report import Reads

_LEAST_ERROR_SHARE, _UNTRIED_ERROR_SHARE = 0.05, 0.30
_MINIMUM_TRIALS = 4
_FAR = 4
"""So many times the largest measured size is no longer on the curve."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Seconds from start to end of a sweep.

    Attributes:
        error_share: typical error: of jobs about their cell's median, and of the curve where a cell is new.
        measured_cells: cells behind the answer.
        job_s: seconds of one job of each cell, by cell key.
        beyond: cells far larger than any that was measured: for them the time is a guess.
    """

    seconds: float
    error_share: float
    measured_cells: int
    job_s: Mapping[str, float]
    beyond: int = 0

    def __str__(self) -> str:
        if self.beyond:
            larger = "1 cell is" if self.beyond == 1 else f"{self.beyond} cells are"
            return f"about {_words(self.seconds)} (a guess: {larger} far larger than any measured)"
        plural = "" if self.measured_cells == 1 else "s"
        percent = f"±{self.error_share * 100:.0f} %"
        return f"about {_words(self.seconds)} (from {self.measured_cells} measured cell{plural}, {percent})"


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of a job: in its timed section, and around it."""

    loop_s: float
    around_s: float

    @property
    def wall_s(self) -> float:
        return self.loop_s + self.around_s


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the loop's time depends on."""

    copied_bytes: float
    iterations: int
    dwell_s: float
    pin_memory: bool
    non_blocking: bool


def expected_seconds(store: Reads, plan: Plan, *, host: str | None = None) -> Expectation | None:
    """The time that ``plan`` takes on this host (local engine) or on the hosts seen; None = nobody knows.

    Cells that ran before take their median; others a curve over the bytes copied and the iterations.
    Timed sections run one at a time, what is around them on as many slots as the plan names.
    """
    frame = wall_times(store)
    options = plan.engine.options
    is_local = isinstance(options, LocalOptions)
    if is_local:
        frame = frame[frame["host"] == (host or socket.gethostname())]
    if frame.empty or not plan.jobs:
        return None
    frame = _by_cell(frame)
    exact = {str(cell): _Times(row.loop_s, row.around_s) for cell, row in frame.iterrows()}
    modes = frame[frame["launch_mode"] == plan.launcher.name]
    around_s = float((modes if len(modes) else frame)["around_s"].median())
    loop_s = _loop_model(frame)
    times = {c.key: exact.get(c.key) or _Times(loop_s(_shape(c)), around_s) for c in plan.cells}
    slots = (options.slots or len(options.gpus or ()) or 1) if isinstance(options, LocalOptions) else 1
    total = sum(times[job.cell.key].loop_s + times[job.cell.key].around_s / slots for job in plan.jobs)
    return Expectation(
        total,
        _error_share(frame, times, exact),
        len(exact),
        {key: time.wall_s for key, time in times.items()},
        _beyond(frame, [cell for cell in plan.cells if cell.key not in exact]),
    )


def _beyond(frame: DataFrame, cells: Sequence[Cell]) -> int:
    """How many of the cells copy much more than any cell of the frame did."""
    largest = float(frame["predicted_copied_bytes"].max())
    return sum(_shape(cell).copied_bytes > _FAR * largest for cell in cells)


def _by_cell(frame: DataFrame) -> DataFrame:
    """One row a cell: medians, and the jobs' scatter about them."""
    frame = frame.assign(around_s=(frame["wall_s"] - frame["loop_s"]).clip(lower=0.0))
    groups = frame.groupby("cell")
    rows = groups.first()
    for name in ("wall_s", "loop_s", "around_s"):
        rows[name] = groups[name].median()
    rows["scatter"] = groups["wall_s"].agg(lambda wall: (wall / wall.median() - 1).abs().median())
    return rows


def _shape(cell: Cell) -> _Shape:
    iterations = int(cell.effective("iteration") or 1) + int(cell.effective("instrumented") or 0)
    return _Shape(
        float(predict(cell).copied_bytes or 0),
        iterations,
        float(cell.effective("dwell_s") or 0.0),
        bool(cell.effective("pin_memory")),
        bool(cell.effective("non_blocking")),
    )


def _row_shape(row: Mapping[Any, Any]) -> _Shape:
    return _Shape(
        _number(row["predicted_copied_bytes"]),
        int(_number(row["iteration"]) or 10) + int(_number(row["instrumented"])),
        _number(row["dwell_s"]),
        bool(_number(row["pin_memory"])),
        bool(_number(row["non_blocking"])),
    )


def _number(value: float | None) -> float:
    """The value; 0 where it is missing."""
    return float(value) if value is not None and value == value else 0.0


def _loop_model(frame: DataFrame) -> Callable[[_Shape], float]:
    """Seconds of a timed loop from its shape: a line over bytes for each kind of copy, times iterations."""
    import numpy as np

    rows = [(_row_shape(row), float(row["loop_s"])) for row in frame.to_dict("records")]

    def seconds(shape: _Shape) -> float:
        alike = [
            pair
            for pair in rows
            if (pair[0].pin_memory, pair[0].non_blocking) == (shape.pin_memory, shape.non_blocking)
        ] or rows
        sizes = np.array([known.copied_bytes for known, _ in alike])
        each = np.array([max(0.0, loop / k.iterations - k.dwell_s) for k, loop in alike])
        return shape.iterations * (_at(sizes, each, shape.copied_bytes) + shape.dwell_s)

    return seconds


def _at(sizes: object, each: object, size: float) -> float:
    """Seconds of one iteration at a size, from iterations at others."""
    import numpy as np

    from orchestrator.analysis.fit import fit_line

    known, seconds = np.asarray(sizes, dtype=float), np.asarray(each, dtype=float)
    usable = (known > 0) & (seconds > 0)
    if size <= 0 or not usable.any():
        return float(np.median(seconds))
    known, seconds = known[usable], seconds[usable]
    if known.max() <= known.min() * 1.01:
        return float(np.median(seconds) * max(1.0, size / np.median(known)))
    fixed_s, s_per_byte = fit_line(known, seconds)
    return fixed_s + s_per_byte * size


def _error_share(frame: DataFrame, times: Mapping[str, _Times], exact: Mapping[str, _Times]) -> float:
    """Error of known and of new cells, weighted by their seconds."""
    scatter = max(_LEAST_ERROR_SHARE, _number(float(frame["scatter"].median())))
    new_s = sum(time.wall_s for key, time in times.items() if key not in exact)
    total_s = sum(time.wall_s for time in times.values())
    if new_s == 0 or total_s == 0:
        return scatter
    return (new_s * _left_out_error(frame) + (total_s - new_s) * scatter) / total_s


def _left_out_error(frame: DataFrame) -> float:
    """Median error of cells foretold from the other ones."""
    import numpy as np

    if len(frame) < _MINIMUM_TRIALS:
        return _UNTRIED_ERROR_SHARE
    cells = frame.iloc[:: max(1, len(frame) // 20)]  # twenty trials say enough
    errors = []
    for cell, row in cells.iterrows():
        shape = _row_shape(row.to_dict())
        around_s = float(frame["around_s"].drop(cell).median())
        errors.append(abs((_loop_model(frame.drop(cell))(shape) + around_s) / float(row["wall_s"]) - 1))
    return max(_LEAST_ERROR_SHARE, float(np.median(errors)))


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
