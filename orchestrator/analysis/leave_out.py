"""How well would the largest measured size have been foretold from the smaller ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.analysis import measured
from orchestrator.analysis.estimate import METRICS
from orchestrator.analysis.fit import MINIMUM_SIZES, fit, points_of

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One curve tried on the size that it did not see; ``error_share`` = |predicted / measured − 1|."""

    host: str
    setting: str
    metric: str
    copied_bytes: float
    stretch: float
    form: str
    predicted_s: float
    measured_s: float

    @property
    def error_share(self) -> float:
        """Size of the relative error."""
        return abs(self.predicted_s / self.measured_s - 1)


def leave_largest_out(jobs: DataFrame) -> list[LeftOut]:
    """Every curve of every host, stack and setting that has one size more than a fit needs.

    ``jobs`` is what ``queries_stats.measured_jobs`` returns.
    """
    frame = measured.prepared(jobs)
    keys = [*measured.STACK, *measured.SETTING, *measured.PREFERRED]
    found = []
    for _, group in frame.groupby(keys, dropna=False, sort=False):
        for metric, link_column in METRICS.values():
            known = group[group[metric].notna()]
            points = points_of(known[measured.SIZE].tolist(), known[metric].astype(float).tolist())
            if len(points) <= MINIMUM_SIZES:
                continue
            row = known.iloc[0]
            link = known[link_column].dropna().astype(float)
            pace = float(link.median()) * 1e9 if len(link) and row["pin_memory"] else None
            curve = fit(points[:-1], pace).curve
            last = points[-1]
            found.append(
                LeftOut(
                    str(row["node"]), measured.setting_text(dict(row)), metric, last.copied_bytes,
                    last.copied_bytes / points[-2].copied_bytes, curve.form, curve.at(last.copied_bytes),
                    last.seconds,
                )
            )  # fmt: skip
    return found
