"""How often does ``orch compare`` err? Simulated sweeps with variance between jobs and within them.

    python -m benchmarks.compare_power --sweeps 200                  # both tables of docs/statistics.md:
    python -m benchmarks.compare_power --sweeps 500 --family-wise    # some 15 minutes
    python -m benchmarks.compare_power --sweeps 1000 --family-wise --only 10x24 --seed 2

Each cell has a noise level of its own; one job in twenty is slow by 10-30 %, as on a shared host. A job's
median is taken over five warm iterations, as in a real sweep.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from orchestrator.analysis.compare import CompareOptions, Comparison, Side, compare
from orchestrator.analysis.multiplicity import Unit, adjusted_p
from orchestrator.analysis.verdicts import ALPHA, Verdict

METRICS = ("offload_s_median", "reload_s_median")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of sweep. Shares are standard deviations of logarithms."""

    cells: int = 24
    repeats: int = 10
    changed: int = 0
    change_share: float = 0.10
    between_share: float = 0.02
    within_share: float = 0.04
    outlier_share: float = 0.05


@dataclass(frozen=True, slots=True)
class Rates:
    """What came out of many simulated sweeps; shares of 1."""

    sweeps: int
    false_alarm: float
    """Sweeps in which some unchanged cell was called better or worse."""
    detected: float
    """Changed cells that were called worse."""
    same: float
    """Unchanged cells that were called the same."""
    wrongly_same: float
    """Changed cells that were called the same."""
    covered: float
    """Intervals that hold the true ratio."""


def simulate(scenario: Scenario, rng: np.random.Generator) -> tuple[Side, Side]:
    """Two takes of one sweep; the first ``changed`` cells of the second are slower."""
    s = scenario
    frames: list[list[pd.DataFrame]] = [[], []]
    for cell in range(s.cells):
        level = rng.lognormal(0, 0.4)
        for side in (0, 1):
            true = np.log(0.3) + (np.log1p(s.change_share) if side and cell < s.changed else 0.0)
            slow = np.where(rng.random(s.repeats) < s.outlier_share, rng.uniform(0.1, 0.3, s.repeats), 0.0)
            job = rng.normal(0, s.between_share * level, s.repeats) + slow
            iterations = rng.normal(0, s.within_share * level, (5, len(METRICS), s.repeats))
            values = np.exp(true + job + np.median(iterations, axis=0))
            frames[side].append(
                pd.DataFrame(
                    {
                        "cell": f"v1:{cell:064x}", "repeat": range(1, s.repeats + 1), "status": "ok",
                        "is_valid": True, "environment_id": 1, "hidden_dim": cell,
                    }
                    | dict(zip(METRICS, values, strict=True))
                )
            )  # fmt: skip
    environments = pd.DataFrame({"environment_id": [1], "host": ["h"]})
    a, b = (Side(name, pd.concat(rows), environments) for name, rows in zip("ab", frames, strict=True))
    return a, b


def error_rates(scenario: Scenario, sweeps: int, seed: int) -> Rates:
    """Compare ``sweeps`` simulated pairs of sweeps and count."""
    rng = np.random.default_rng(seed)
    alarms, detected, same, wrongly_same, covered, changed, unchanged = 0, 0, 0, 0, 0, 0, 0
    for number in range(sweeps):
        found = compare(*simulate(scenario, rng), CompareOptions(METRICS, seed=number))
        is_alarm = False
        for change in found.changes:
            is_changed = int(change.cell.removeprefix("v1:"), 16) < scenario.changed
            moved = change.verdict in (Verdict.WORSE, Verdict.BETTER)
            is_alarm |= moved and not is_changed
            changed += is_changed
            unchanged += not is_changed
            detected += is_changed and change.verdict is Verdict.WORSE
            same += not is_changed and change.verdict is Verdict.SAME
            wrongly_same += is_changed and change.verdict is Verdict.SAME
            covered += _covers(change.ratio_low, change.ratio_high, is_changed, scenario)
        alarms += is_alarm
    total = changed + unchanged
    return Rates(
        sweeps, alarms / sweeps, detected / max(changed, 1), same / max(unchanged, 1),
        wrongly_same / max(changed, 1), covered / total,
    )  # fmt: skip


def family_wise_alarms(scenario: Scenario, sweeps: int, seed: int) -> int:
    """Sweeps without a change in which the family-wise test alone finds one: no fewer than the command's."""
    rng = np.random.default_rng(seed)
    alarms = 0
    for number in range(sweeps):
        a, b = (side.jobs for side in simulate(scenario, rng))
        shape = (len(METRICS), scenario.cells, scenario.repeats)
        logs = [np.log(side[list(METRICS)].to_numpy().T.reshape(shape)) for side in (a, b)]
        both = np.moveaxis(np.concatenate(logs, axis=2), 1, 0)
        units = [Unit(cell, scenario.repeats) for cell in both]
        alarms += bool((adjusted_p(units, seed=number, deals=1000) <= ALPHA).any())
    return alarms


def _covers(low: float | None, high: float | None, is_changed: bool, scenario: Scenario) -> bool:
    true = 1 + scenario.change_share * is_changed
    return low is not None and high is not None and low <= true <= high


def holm_on_mann_whitney(found: Comparison) -> int:
    """Metrics that the textbook method would call changed: Holm over the Mann–Whitney p."""
    p = np.sort([c.p_mann_whitney for c in found.changes if c.p_mann_whitney is not None])
    passed = p * np.arange(len(p), 0, -1) <= 0.05
    return int(np.argmin(passed)) if not passed.all() else len(p)


SCENARIOS = [
    Scenario(cells=cells, repeats=repeats, changed=changed)
    for repeats in (4, 5, 10)
    for cells, changed in ((1, 0), (4, 0), (24, 0), (72, 0), (4, 1), (24, 6), (72, 4))
]


def _print_family_wise(sweeps: int, seed: int, only: str | None) -> None:
    print("| repeats | cells | false alarms | 95 % interval |\n|---:|---:|---:|---:|")
    for repeats in (4, 5, 10):
        for cells in (1, 4, 24, 72):
            if only not in (None, f"{repeats}x{cells}"):
                continue
            alarms = family_wise_alarms(Scenario(cells=cells, repeats=repeats), sweeps, seed)
            low, high = stats.binomtest(alarms, sweeps).proportion_ci()
            rate = f"{alarms / sweeps:.1%} of {sweeps} | {low:.1%} – {high:.1%}"
            print(f"| {repeats} | {cells} | {rate} |", flush=True)


def main() -> None:
    """Print a table of docs/statistics.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=400, help="simulated sweeps a row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family-wise", action="store_true", help="only the false alarms, of many sweeps")
    parser.add_argument("--only", metavar="REPEATSxCELLS", help="one size of sweep")
    arguments = parser.parse_args()
    if arguments.family_wise:
        _print_family_wise(arguments.sweeps, arguments.seed, arguments.only)
        return
    print("| repeats | cells | changed | false alarms | found | rightly same | wrongly same | covered | s |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for s in SCENARIOS:
        if arguments.only not in (None, f"{s.repeats}x{s.cells}"):
            continue
        start = time.monotonic()
        # Large sweeps hold many cells each: fewer are needed for the same number of verdicts.
        r = error_rates(s, max(10, arguments.sweeps // max(1, s.cells // 8)), arguments.seed)
        took = (time.monotonic() - start) / r.sweeps
        found = f"{r.detected:.1%}" if s.changed else ""
        wrong = f"{r.wrongly_same:.1%}" if s.changed else ""
        alarms = f"{r.false_alarm:.1%} of {r.sweeps}"
        fields = (s.repeats, s.cells, s.changed, alarms, found, f"{r.same:.1%}", wrong, f"{r.covered:.1%}")
        print("| " + " | ".join(map(str, fields)) + f" | {took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
