"""What does starting a job cost? Trivial ZeRO-3 jobs on a CPU through ``fork`` and ``deepspeed``.

    python -m benchmarks.startup [--jobs 100] [--deepspeed-jobs 3] [--ranks 1]

Overhead of a job = (wall clock of the whole ``orch sweep``, server start, database and report included,
minus the loops that the jobs recorded) / jobs. The same sweep file for both; ratio printed last.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def overhead_s(launcher: str, jobs: int, ranks: int) -> float:
    """Overhead of a job through the launcher, seconds; prints its line."""
    with tempfile.TemporaryDirectory(prefix="orch-startup-") as name:
        folder = Path(name)
        spec = folder / "trivial.yaml"
        spec.write_text(
            f"name: trivial\nrepeats: {jobs}\n"
            f"defaults: {{hidden_dim: 64, nlayers: 1, iteration: 2, warmup: 1, num_gpus: {ranks},"
            " dtype: float32}\n"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ORCH_STATE_DIR": str(folder / "state"),
            "DS_ACCELERATOR": "cpu",
        }
        database = folder / "orch.db"
        command = [sys.executable, "-m", "orchestrator", "sweep", str(spec), "--db", str(database),
                   "--launcher", launcher, "--slots", str(ranks)]  # fmt: skip
        since_s = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        wall_s = time.monotonic() - since_s
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
        with closing(sqlite3.connect(database)) as connection:
            loops_s, ok = connection.execute(
                "select sum(loop_s), count(*) from attempt where status = 'ok'"
            ).fetchone()
    if ok != jobs:
        sys.exit(f"{ok} of {jobs} jobs are ok")
    each_s = (wall_s - (loops_s or 0.0)) / jobs
    print(
        f"{launcher:9s} {ranks} rank{'s' if ranks > 1 else ''}: {jobs} jobs, wall {wall_s:.2f} s,"
        f" loops {loops_s or 0.0:.2f} s, overhead {each_s:.3f} s a job",
        flush=True,
    )
    return each_s


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100, help="through fork")
    parser.add_argument("--deepspeed-jobs", type=int, default=3, help="through the deepspeed command")
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    fork_s = overhead_s("fork", options.jobs, options.ranks)
    deepspeed_s = overhead_s("deepspeed", options.deepspeed_jobs, options.ranks)
    print(f"the deepspeed command costs {deepspeed_s / fork_s:.1f} x as much")


if __name__ == "__main__":
    main()
