"""The example's benchmark, by its own loop and by orch, on the same machine in one run.

    python -m benchmarks.example_loop --script PATH/offload_states.py --hidden-dim 4096 --nlayers 8 --trials 2

The script is DeepSpeed's example (training/offload_states in its examples repository); it is started as its
own shell loop starts it, a ``deepspeed`` command for each setting of each trial: half of the trials before
orch's, half after, so that a drift of the machine meets both. Both sides run the same iterations.

The loops themselves cost the same on either side, so the table shows them apart: what a job costs beyond
its loop is all that a launcher can save. ``at most`` is the ratio if that were nothing.
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
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

SETTINGS = list(itertools.product((False, True), repeat=2))
ROOT = Path(__file__).resolve().parent.parent
SWEEP = ROOT / "sweeps" / "deepspeed_example.yaml"
ITERATIONS = 10
"""Of the script unless told otherwise, and of the sweep."""

JOBS = """
SELECT s.pin_memory, s.non_blocking, s.wall_s, s.loop_s, a.timed_from_at, a.timed_to_at,
       (SELECT SUM(i.step_s + i.offload_all_s + i.reload_all_s) FROM iteration i
        WHERE i.attempt_id = a.attempt_id AND i.rank = 0) AS calls_s
FROM job_summary s JOIN attempt a ON a.attempt_id = s.attempt_id
WHERE s.sweep = '{name}' AND s.status = 'ok' ORDER BY a.attempt_id
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One command of the example's loop.

    Attributes:
        wall_s: of the command.
        calls_s: what it printed itself, offload and load, times its iterations; steps are not in it.
    """

    setting: tuple[bool, bool]
    wall_s: float
    calls_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What the comparison found: seconds a job, and ratios."""

    example_jobs: int
    example_s_per_job: float
    example_calls_s_per_job: float
    orch_jobs: int
    orch_s_per_job: float
    orch_loop_s_per_job: float
    orch_checks_s_per_job: float
    orch_overhead_s_per_job: float
    orch_before_first_loop_s: float
    orch_between_loops_s: float | None
    times_faster: float
    times_faster_at_most: float
    times_less_overhead: float


def deepspeed_command() -> str:
    """The ``deepspeed`` command of this Python, else the one on PATH."""
    own = Path(sys.executable).with_name("deepspeed")
    return str(own) if own.exists() else "deepspeed"


def run_example(script: Path, options: argparse.Namespace, folder: Path) -> list[Example]:
    """One trial of the example's loop, a command a setting."""
    done = []
    rows = folder / "offload_states.log"
    for pin_memory, non_blocking in SETTINGS:
        command = [deepspeed_command(), f"--num_gpus={options.num_gpus}", str(script)]
        command += ["--hidden_dim", str(options.hidden_dim), "--nlayers", str(options.nlayers)]
        command += ["--pin_memory"] * pin_memory + ["--non_blocking"] * non_blocking
        began = time.monotonic()
        with (folder / "example.txt").open("ab") as log:
            subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=True, timeout=900)
        wall_s = time.monotonic() - began
        offload_s, load_s = map(float, rows.read_text().split()[-1].split(",")[2:4])
        done.append(Example((pin_memory, non_blocking), wall_s, ITERATIONS * (offload_s + load_s)))
    return done


def run_orch(options: argparse.Namespace, database: Path, log: Path) -> tuple[float, float]:
    """All trials by orch: when it began, seconds since 1970, and seconds of the whole command."""
    command = [*orch(), "sweep", str(SWEEP), "--db", str(database), "--name", options.name, "--no-probe"]
    for setting in (
        f"repeats={options.orch_trials or options.trials}",
        f"num_gpus={options.num_gpus}",
        f"hidden_dim={options.hidden_dim}",
        f"nlayers={options.nlayers}",
        *options.set,
    ):
        command += ["--set", setting]
    if options.gpus:
        command += ["--gpus", options.gpus]
    began_at, began = time.time(), time.monotonic()
    with log.open("ab") as stream:
        subprocess.run(command, stdout=stream, stderr=stream, check=True, timeout=3600)
    return began_at, time.monotonic() - began


def orch() -> list[str]:
    """The command, of this checkout."""
    return [sys.executable, "-m", "orchestrator"]


def read_jobs(database: Path, name: str) -> list[dict[str, Any]]:
    """The jobs that orch ran, in the order in which it ran them."""
    command = [*orch(), "sql", JOBS.format(name=name), "--db", str(database), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(answer.stdout)
    return rows


def figures(example: list[Example], jobs: list[dict[str, Any]], began_at: float, wall_s: float) -> Figures:
    """Both sides, a job each."""
    loops = [(_seconds(job["timed_from_at"]), _seconds(job["timed_to_at"])) for job in jobs]
    loop_s = fmean(job["loop_s"] for job in jobs)
    example_s = fmean(one.wall_s for one in example)
    calls_s = fmean(one.calls_s for one in example)
    orch_s = wall_s / len(jobs)
    between = [after[0] - before[1] for before, after in itertools.pairwise(loops)]
    return Figures(
        example_jobs=len(example),
        example_s_per_job=example_s,
        example_calls_s_per_job=calls_s,
        orch_jobs=len(jobs),
        orch_s_per_job=orch_s,
        orch_loop_s_per_job=loop_s,
        orch_checks_s_per_job=loop_s - fmean(job["calls_s"] for job in jobs),
        orch_overhead_s_per_job=orch_s - loop_s,
        orch_before_first_loop_s=loops[0][0] - began_at,
        orch_between_loops_s=median(between) if between else None,
        times_faster=example_s / orch_s,
        times_faster_at_most=example_s / loop_s,
        times_less_overhead=(example_s - calls_s) / (orch_s - loop_s),
    )


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def settings_table(example: list[Example], jobs: list[dict[str, Any]]) -> list[str]:
    """A line a setting: where the seconds of a job go, on either side."""
    heads = ("example", "calls", "rest", "orch", "calls", "checks", "rest")
    lines = ["pin_memory non_blocking " + "".join(f"{head:>9s}" for head in heads)]
    for setting in SETTINGS:
        theirs = [one for one in example if one.setting == setting]
        ours = [job for job in jobs if (bool(job["pin_memory"]), bool(job["non_blocking"])) == setting]
        if not theirs or not ours:
            continue
        wall_s, calls_s = fmean(one.wall_s for one in theirs), fmean(one.calls_s for one in theirs)
        own_s, loop_s, own_calls_s = (
            fmean(job[name] for job in ours) for name in ("wall_s", "loop_s", "calls_s")
        )
        cost = (wall_s, calls_s, wall_s - calls_s, own_s, own_calls_s, loop_s - own_calls_s, own_s - loop_s)
        lines.append(f"{setting[0]!s:11s}{setting[1]!s:13s}" + "".join(f"{value:9.2f}" for value in cost))
    return lines


def main() -> None:
    """Runs both sides, prints the table and a line a figure, then the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--script", type=Path, required=True, help="the example's offload_states.py")
    parser.add_argument("--hidden-dim", type=int, default=4096)
    parser.add_argument("--nlayers", type=int, default=8)
    parser.add_argument("--num-gpus", type=int, default=1)
    parser.add_argument("--gpus", help="devices that orch may use (default: all)")
    parser.add_argument("--trials", type=int, default=2, help="trials of the example's loop")
    parser.add_argument("--orch-trials", type=int, default=None, help="trials by orch (default: as many)")
    parser.add_argument("--set", action="append", default=[], metavar="AXIS=VALUE", help="of orch's sweep")
    parser.add_argument("--folder", type=Path, help="where the logs go (default: temporary)")
    parser.add_argument("--db", type=Path, help="orch's database (default: in the folder)")
    parser.add_argument("--name", default=f"example-{time.time_ns()}", help="of orch's sweep; a new one")
    parser.add_argument("--save", type=Path, help="a file for the figures, as JSON")
    options = parser.parse_args()
    script = options.script.resolve(strict=True)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="orch-bench-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "offload_states.log").unlink(missing_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    database = options.db or folder / "orch.db"

    example: list[Example] = []
    half = options.trials // 2
    for _ in range(options.trials - half):
        example += run_example(script, options, folder)
    began_at, wall_s = run_orch(options, database, folder / "orch.txt")
    for _ in range(half):
        example += run_example(script, options, folder)

    jobs = read_jobs(database, options.name)
    found = asdict(figures(example, jobs, began_at, wall_s))
    print("seconds a job; calls: timed ones; checks: between them; rest: outside the loop, of the example")
    print("also its steps and what its first iteration takes beyond a warm one\n")
    print("\n".join(settings_table(example, jobs)), "\n")
    for name, value in found.items():
        print(f"{name:26s} {'–' if value is None else format(value, '.3f'):>10s}")
    print(json.dumps(found))
    if options.save:
        options.save.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
