"""How well are the largest measured sizes foretold from the smaller ones?

python -m benchmarks.predict_error DATABASE...
"""

from __future__ import annotations

import argparse
from statistics import median

from orchestrator.analysis.leave_out import leave_largest_out
from orchestrator.analysis.sides import read_only
from orchestrator.store.queries_stats import measured_jobs


def main() -> None:
    """Print a row a curve and the median error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", nargs="+")
    for path in parser.parse_args().database:
        with read_only(path) as store:
            found = leave_largest_out(measured_jobs(store))
        print(f"## {path}\n")
        print("| setting | metric | GB left out | × the next | form | predicted s | measured s | error |")
        print("|---|---|---:|---:|---|---:|---:|---:|")
        for case in sorted(found, key=lambda case: case.error_share):
            print(
                f"| {case.setting} | {case.metric} | {case.copied_bytes / 1e9:.3g} | {case.stretch:.1f} |"
                f" {case.form} | {case.predicted_s:.4g} | {case.measured_s:.4g} | {case.error_share:.1%} |"
            )
        if found:
            error = median(case.error_share for case in found)
            print(f"\nmedian error {error:.1%} over {len(found)} curves\n")
        else:
            print("\nno setting was measured at four sizes or more\n")


if __name__ == "__main__":
    main()
