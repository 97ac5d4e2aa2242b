"""Which cells became better or worse between two sweeps?

The unit is a job: iterations of one process are not independent. Method and error rates are in
docs/statistics.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.analysis.environments import EnvironmentDifference, environment_differences
from orchestrator.analysis.labels import cell_labels, short_labels
from orchestrator.analysis.metrics import DEFAULT_METRICS, MORE_IS_BETTER, check_metrics
from orchestrator.analysis.verdicts import Evidence, Verdict, judge, overall, too_few
from orchestrator.errors import SpecError

if TYPE_CHECKING:
    from pandas import DataFrame

    from orchestrator.analysis.multiplicity import Unit
    from orchestrator.analysis.statistics import Sample


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How to compare.

    Attributes:
        metrics: columns of ``job_summary``.
        margin_share: a change whose whole interval lies within ± this share is "same".
        include_flagged: take jobs that are ok but carry a flag, too.
        seed: of the deals and of the bootstrap; the same seed gives the same result.
    """

    metrics: Sequence[str] = DEFAULT_METRICS
    margin_share: float = 0.05
    include_flagged: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sweeps: its name as asked for, its jobs and the stacks they ran on."""

    name: str
    jobs: DataFrame
    environments: DataFrame


@dataclass(frozen=True, slots=True)
class CellChange:
    """One metric of one cell; None = not known. Ratios are B / A."""

    cell: str
    label: str
    metric: str
    verdict: Verdict
    reason: str
    repeats_a: int
    repeats_b: int
    median_a: float | None = None
    median_b: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    hodges_lehmann_ratio: float | None = None
    cliffs_delta: float | None = None
    p_mann_whitney: float | None = None
    p_adjusted: float | None = None

    @property
    def worse_share(self) -> float:
        """By what share it is worse: 0.1 = seconds up by a tenth, or GB/s down to 1 / 1.1; 0 if not."""
        if self.verdict is not Verdict.WORSE or not self.ratio:
            return 0.0
        return (1 / self.ratio if MORE_IS_BETTER[self.metric] else self.ratio) - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that ``orch compare`` says."""

    name_a: str
    name_b: str
    environment: tuple[EnvironmentDifference, ...]
    changes: tuple[CellChange, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    left_out_a: int
    left_out_b: int
    options: CompareOptions
    failing: tuple[str, ...] = ()
    """Cells that gave figures in A, and in B none because their jobs failed."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Cells as people name them, by key."""
    usual: str = ""
    """What most cells have in common, which their names leave out."""

    def counts(self) -> dict[Verdict, int]:
        """Cells by their verdict over all metrics."""
        by_cell: dict[str, list[Verdict]] = {}
        for change in self.changes:
            by_cell.setdefault(change.cell, []).append(change.verdict)
        found = [overall(verdicts) for verdicts in by_cell.values()]
        return {verdict: found.count(verdict) for verdict in Verdict}

    def is_worse_by(self, share: float) -> bool:
        """Whether some metric of some cell is worse by more than ``share``, or a cell fails in B alone."""
        return bool(self.failing) or any(change.worse_share > share for change in self.changes)


_FAILED = ("failed", "timeout", "oom_gpu", "oom_host", "lost")


@dataclass(slots=True)
class _Pair:
    """The samples of one cell, a row a metric."""

    cell: str
    a: list[Sample]
    b: list[Sample]


def compare(a: Side, b: Side, options: CompareOptions | None = None) -> Comparison:
    """Compare the jobs of two sweeps, paired by cell.

    Raises:
        SpecError: an unknown metric, or no cell in common.
    """
    options = options or CompareOptions()
    metrics = check_metrics(options.metrics)
    usable_a, left_out_a = _usable(a.jobs, options)
    usable_b, left_out_b = _usable(b.jobs, options)
    cells_a, cells_b = list(dict.fromkeys(a.jobs["cell"])), list(dict.fromkeys(b.jobs["cell"]))
    common = [cell for cell in cells_a if cell in set(cells_b)]
    if not common:
        raise SpecError(
            f"no cell of {a.name} ({len(cells_a)} cells) is in {b.name} ({len(cells_b)} cells)",
            fix="compare two takes of the same sweep file",
        )
    pairs = [_pair(cell, usable_a, usable_b, metrics) for cell in common]
    where, usual = short_labels(a.jobs, common)
    return Comparison(
        name_a=a.name,
        name_b=b.name,
        environment=environment_differences(
            _ran_on(a.environments, usable_a), _ran_on(b.environments, usable_b)
        ),
        changes=_changes(pairs, cell_labels(a.jobs, common), metrics, options),
        only_a=tuple(cell for cell in cells_a if cell not in set(cells_b)),
        only_b=tuple(cell for cell in cells_b if cell not in set(cells_a)),
        left_out_a=left_out_a,
        left_out_b=left_out_b,
        options=options,
        failing=_failing(a.jobs, b.jobs, common),
        where=where,
        usual=usual,
    )


def _failing(jobs_a: DataFrame, jobs_b: DataFrame, common: Sequence[str]) -> tuple[str, ...]:
    ok_a, ok_b = (set(jobs[jobs["status"] == "ok"]["cell"]) for jobs in (jobs_a, jobs_b))
    failed_b = set(jobs_b[jobs_b["status"].isin(_FAILED)]["cell"])
    return tuple(cell for cell in common if cell in ok_a and cell in failed_b - ok_b)


def _usable(jobs: DataFrame, options: CompareOptions) -> tuple[DataFrame, int]:
    """Jobs that may enter, and how many that are ok were left out for a flag."""
    ok = jobs[jobs["status"] == "ok"]
    if options.include_flagged:
        return ok, 0
    valid = ok[ok["is_valid"].isin([True])]
    return valid, len(ok) - len(valid)


def _ran_on(environments: DataFrame, jobs: DataFrame) -> DataFrame:
    return environments[environments["environment_id"].isin(jobs["environment_id"])]


def _pair(cell: str, jobs_a: DataFrame, jobs_b: DataFrame, metrics: Sequence[str]) -> _Pair:
    import numpy as np

    a, b = (jobs[jobs["cell"] == cell].sort_values("repeat") for jobs in (jobs_a, jobs_b))
    return _Pair(
        cell,
        [a[metric].to_numpy(dtype=np.float64, na_value=np.nan) for metric in metrics],
        [b[metric].to_numpy(dtype=np.float64, na_value=np.nan) for metric in metrics],
    )


def _changes(
    pairs: Sequence[_Pair], labels: dict[str, str], metrics: Sequence[str], options: CompareOptions
) -> tuple[CellChange, ...]:
    from orchestrator.analysis.multiplicity import adjusted_p

    judged = [pair for pair in pairs if not too_few(len(pair.a[0]), len(pair.b[0]))]
    table = adjusted_p([_unit(pair) for pair in judged], seed=options.seed)
    p_of = {pair.cell: row for pair, row in zip(judged, table, strict=True)}
    return tuple(
        _change(pair, labels[pair.cell], metric, number, p_of, options)
        for pair in pairs
        for number, metric in enumerate(metrics)
    )


def _unit(pair: _Pair) -> Unit:
    import numpy as np

    from orchestrator.analysis.multiplicity import Unit

    values = np.array([np.concatenate([a, b]) for a, b in zip(pair.a, pair.b, strict=True)])
    usable = np.isfinite(values) & (values > 0)
    complete = np.all(usable, axis=1, keepdims=True)
    logs = np.log(np.where(usable, values, 1.0))
    return Unit(np.where(complete, logs, np.nan), len(pair.a[0]))


def _change(
    pair: _Pair,
    label: str,
    metric: str,
    number: int,
    p_of: dict[str, Sample],
    options: CompareOptions,
) -> CellChange:
    import numpy as np

    from orchestrator.analysis import statistics

    a, b = pair.a[number], pair.b[number]
    blank = CellChange(
        pair.cell, label, metric, Verdict.INCONCLUSIVE, _cannot_judge(a, b), len(a), len(b), *_medians(a, b)
    )
    if blank.reason:
        return blank
    # A cell's interval depends on the cell alone, not on which others are compared with it.
    seed = zlib.crc32(f"{options.seed}/{pair.cell}/{metric}".encode())
    low, high = statistics.median_ratio_interval(a, b, seed=seed)
    evidence = Evidence(
        ratio=float(np.median(b) / np.median(a)),
        ratio_low=low,
        ratio_high=high,
        p_mann_whitney=statistics.mann_whitney_p(a, b),
        p_adjusted=float(p_of[pair.cell][number]),
    )
    more_is_better = MORE_IS_BETTER[metric]
    verdict, reason = judge(evidence, more_is_better=more_is_better, margin_share=options.margin_share)
    return replace(
        blank,
        verdict=verdict,
        reason=reason,
        ratio_low=low,
        ratio_high=high,
        hodges_lehmann_ratio=statistics.hodges_lehmann_ratio(a, b),
        cliffs_delta=statistics.cliffs_delta(a, b),
        p_mann_whitney=evidence.p_mann_whitney,
        p_adjusted=evidence.p_adjusted,
    )


def _medians(a: Sample, b: Sample) -> tuple[float | None, float | None, float | None]:
    """Medians of what was measured and their ratio, None where there is none."""
    import numpy as np

    known = [side[np.isfinite(side)] for side in (a, b)]
    median_a, median_b = (float(np.median(side)) if len(side) else None for side in known)
    return median_a, median_b, median_b / median_a if median_a and median_b is not None else None


def _cannot_judge(a: Sample, b: Sample) -> str:
    import numpy as np

    if reason := too_few(len(a), len(b)):
        return reason
    values = np.concatenate([a, b])
    unusable = int(np.count_nonzero(~(np.isfinite(values) & (values > 0))))
    plural = "s" if unusable > 1 else ""
    return f"not measured, not finite or not positive in {unusable} job{plural}" if unusable else ""
