"""The example's benchmark, by its own loop and by orch, on the same machine in one run.

    python benchmarks/example_loop.py --script PATH/offload_states.py --hidden-dim 4096 --nlayers 8 --trials 3

The script is DeepSpeed's example (training/offload_states in its examples repository); it is started
as its own shell loop starts it, a ``deepspeed`` command for each setting of each trial. Both sides take turns
trial by trial, so that a drift of the machine meets both. Printed: seconds a job on either side, the
ratio, and what orch spends a job outside the recorded loops.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = list(itertools.product((False, True), repeat=2))
SWEEP = Path(__file__).resolve().parent.parent / "sweeps" / "deepspeed_example.yaml"


def deepspeed_command() -> str:
    """The ``deepspeed`` command of this Python, else the one on PATH."""
    own = Path(sys.executable).with_name("deepspeed")
    return str(own) if own.exists() else "deepspeed"


def run_example(script: Path, options: argparse.Namespace, folder: Path) -> list[float]:
    """One trial of the example's loop: seconds of each of its four commands."""
    seconds = []
    for pin_memory, non_blocking in SETTINGS:
        command = [deepspeed_command(), f"--num_gpus={options.num_gpus}", str(script)]
        command += ["--hidden_dim", str(options.hidden_dim), "--nlayers", str(options.nlayers)]
        command += ["--pin_memory"] * pin_memory + ["--non_blocking"] * non_blocking
        began = time.monotonic()
        with (folder / "example.txt").open("ab") as log:
            subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=True, timeout=900)
        seconds.append(time.monotonic() - began)
    return seconds


def run_orch(options: argparse.Namespace, folder: Path, repeats: int) -> tuple[float, float, int]:
    """``repeats`` trials by orch: seconds of the whole command, of its recorded loops, and its jobs."""
    database = folder / "orch.db"
    orch = [sys.executable, "-m", "orchestrator"]
    command = [*orch, "sweep", str(SWEEP), "--db", str(database), "--name", f"bench{time.monotonic_ns()}"]
    for setting in (
        f"repeats={repeats}",
        f"num_gpus={options.num_gpus}",
        f"hidden_dim={options.hidden_dim}",
        f"nlayers={options.nlayers}",
    ):
        command += ["--set", setting]
    command.append("--no-probe")
    began = time.monotonic()
    with (folder / "orch.txt").open("ab") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=True, timeout=3600)
    wall_s = time.monotonic() - began
    query = (
        "SELECT COUNT(*) AS jobs, SUM(a.loop_s) AS loop_s FROM attempt a JOIN job j ON j.job_id = a.job_id "
        "WHERE a.status = 'ok' AND j.sweep_id = (SELECT MAX(sweep_id) FROM sweep)"
    )
    answer = subprocess.run(
        [*orch, "sql", query, "--db", str(database), "--json"], capture_output=True, text=True, check=True
    )
    row = json.loads(answer.stdout)[0]
    return wall_s, row["loop_s"], row["jobs"]


def main() -> None:
    """Runs both sides and prints one line a figure, then the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--script", type=Path, required=True, help="the example's offload_states.py")
    parser.add_argument("--hidden-dim", type=int, default=4096)
    parser.add_argument("--nlayers", type=int, default=8)
    parser.add_argument("--num-gpus", type=int, default=1)
    parser.add_argument("--trials", type=int, default=2, help="trials of the example's loop")
    parser.add_argument("--orch-trials", type=int, default=None, help="trials by orch (default: as many)")
    parser.add_argument("--folder", type=Path, help="where logs and the database go (default: temporary)")
    options = parser.parse_args()
    script = options.script.resolve(strict=True)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="orch-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTHONPATH", str(SWEEP.parent.parent))

    example_s: list[float] = []
    half = options.trials // 2
    for _ in range(options.trials - half):
        example_s += run_example(script, options, folder)
    wall_s, loop_s, jobs = run_orch(options, folder, options.orch_trials or options.trials)
    for _ in range(half):
        example_s += run_example(script, options, folder)

    figures = {
        "example_jobs": len(example_s),
        "example_s_per_job": sum(example_s) / len(example_s),
        "orch_jobs": jobs,
        "orch_s_per_job": wall_s / jobs,
        "orch_loop_s_per_job": loop_s / jobs,
        "orch_overhead_s_per_job": (wall_s - loop_s) / jobs,
        "times_faster": (sum(example_s) / len(example_s)) / (wall_s / jobs),
    }
    for name, value in figures.items():
        print(f"{name:26s} {value:10.3f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
