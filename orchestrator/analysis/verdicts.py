"""Better, worse, same or inconclusive: what may be said of one cell's metric?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MINIMUM_REPEATS = 4
ALPHA = 0.05


class Verdict(StrEnum):
    """What the jobs of two sides say; in the order of a report."""

    WORSE = "worse"
    BETTER = "better"
    INCONCLUSIVE = "inconclusive"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Ratios are B / A; p is two-sided, ``p_adjusted`` over all cells and metrics of the comparison."""

    ratio: float
    ratio_low: float
    ratio_high: float
    p_mann_whitney: float
    p_adjusted: float


def judge(evidence: Evidence, *, more_is_better: bool, margin_share: float) -> tuple[Verdict, str]:
    """The verdict and, where it is inconclusive, the reason.

    A change needs both tests below ``ALPHA``; "same" needs the whole interval within the margin, which
    a small but certain change fulfils too.
    """
    if 1 / (1 + margin_share) <= evidence.ratio_low and evidence.ratio_high <= 1 + margin_share:
        return Verdict.SAME, ""
    if evidence.p_adjusted <= ALPHA and evidence.p_mann_whitney <= ALPHA:
        return (Verdict.BETTER if (evidence.ratio > 1) == more_is_better else Verdict.WORSE), ""
    return Verdict.INCONCLUSIVE, f"the interval is wider than ±{margin_share:.3g} of the median"


def too_few(repeats_a: int, repeats_b: int) -> str:
    """Why these repeats allow no verdict; empty if they do."""
    if min(repeats_a, repeats_b) >= MINIMUM_REPEATS:
        return ""
    return f"{repeats_a} + {repeats_b} repeats, {MINIMUM_REPEATS} a side are needed"


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a cell from those of its metrics: the one that matters most."""
    found = set(verdicts)
    return next(verdict for verdict in Verdict if verdict in found)
