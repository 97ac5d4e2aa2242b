"""How many jobs a second can orch handle? Jobs whose worker does nothing, through the real commands.

    python -m benchmarks.throughput [--jobs 100 1000 10000] [--slots 8]

Each line: plan, sweep and status of so many jobs in a new database; wall clock, jobs a second, CPU of
all its processes a job (and so the rate on two idle cores), peak memory of the largest process.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKER = "benchmarks.noop_worker:main"
ROOT = Path(__file__).resolve().parents[1]


def write_spec(folder: Path, jobs: int) -> Path:
    """A sweep of ``jobs`` different cells (at most 100 of them, the rest repeats)."""
    cells = min(jobs, 100)
    path = folder / "noop.yaml"
    path.write_text(
        f"name: noop\nrepeats: {jobs // cells}\ndefaults: {{iteration: 1, warmup: 0}}\n"
        f"matrix: {{seq_len: {list(range(1, cells + 1))}}}\n"
        f"launcher: {{name: fork, worker: '{WORKER}'}}\n"
    )
    return path


def run(folder: Path, *arguments: str) -> float:
    """Wall clock of one ``orch`` command, seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ORCH_STATE_DIR": str(folder / "state"),
        "ORCH_DB": str(folder / "orch.db"),
        "DS_ACCELERATOR": "cpu",
    }
    since_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"orch {' '.join(arguments)}: exit status {done.returncode}\n{done.stderr}")
    return time.monotonic() - since_s


def measure(jobs: int, slots: int) -> None:
    """Print one line for so many jobs."""
    with tempfile.TemporaryDirectory(prefix="orch-throughput-") as name:
        folder = Path(name)
        spec = write_spec(folder, jobs)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        plan_s = run(folder, "plan", str(spec), "--json")
        sweep_s = run(folder, "sweep", str(spec), "--slots", str(slots), "--quiet")
        status_s = run(folder, "status", "--json")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    total_s = plan_s + sweep_s + status_s
    print(
        f"{jobs:6d} jobs: {total_s:7.2f} s (plan {plan_s:.2f}, sweep {sweep_s:.2f}, status {status_s:.2f})"
        f" = {jobs / total_s:6.1f} jobs/s, {1e3 * total_s / jobs:6.2f} ms a job,"
        f" {1e3 * cpu_s / jobs:5.2f} ms CPU a job (two cores of its own: {2 * jobs / cpu_s:.0f} jobs/s),"
        f" peak {after.ru_maxrss / 1024:.0f} MB",
        flush=True,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--slots", type=int, default=8)
    options = parser.parse_args()
    for jobs in options.jobs:
        measure(jobs, options.slots)


if __name__ == "__main__":
    main()
