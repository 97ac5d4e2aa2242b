"""The example's benchmark, by its own loop and by orch, on the same machine in one run.

    python -m benchmarks.example_loop --script PATH/offload_states.py --hidden-dim 4096 --nlayers 8 --trials 2

The script is DeepSpeed's example (training/offload_states in its examples repository); it is started as its
own shell loop starts it, a ``deepspeed`` command for each setting of each trial: half of the trials before
orch's, half after, so that a drift of the machine meets both. Both sides run the same iterations.

The loops themselves cost the same on either side, so the table shows them apart: what a job costs beyond
its loop is all that a launcher can save. ``at most`` is the ratio if that were nothing.

The file of ``--save`` is written anew behind every command of the example and behind orch's sweep. SIGTERM
or SIGINT ends what runs; the figures are then of what both sides have, orch's wall clock up to the end of
its last job, ``cut_short`` is true and the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.example_figures import (
    SETTINGS,
    Example,
    Figures,
    document,
    figures,
    seconds,
    settings_table,
)
from benchmarks.stopping import Stop, write_whole

ROOT = Path(__file__).resolve().parent.parent
SWEEP = ROOT / "sweeps" / "deepspeed_example.yaml"
ITERATIONS = 10
"""Of the script unless told otherwise, and of the sweep."""
EXAMPLE_TIMEOUT_S = 900

JOBS = """
SELECT s.pin_memory, s.non_blocking, s.wall_s, s.loop_s, a.timed_from_at, a.timed_to_at, a.ended_at,
       (SELECT SUM(i.step_s + i.offload_all_s + i.reload_all_s) FROM iteration i
        WHERE i.attempt_id = a.attempt_id AND i.rank = 0) AS calls_s
FROM job_summary s JOIN attempt a ON a.attempt_id = s.attempt_id
WHERE s.sweep = '{name}' AND s.status = 'ok' ORDER BY a.attempt_id
"""


@dataclass(slots=True)
class Comparison:
    """Both sides, as far as they have been run.

    Attributes:
        began_at: of orch's sweep, seconds since 1970.
        wall_s: of the whole sweep; None until it is over, and where it was stopped.
    """

    options: argparse.Namespace
    script: Path
    folder: Path
    database: Path
    example: list[Example] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    began_at: float = 0.0
    wall_s: float | None = None

    @property
    def orch_trials(self) -> int:
        """Trials by orch, as many as the example's unless told otherwise."""
        return int(self.options.orch_trials or self.options.trials)

    @property
    def asked(self) -> tuple[int, int]:
        """Jobs wanted of the example and of orch."""
        return len(SETTINGS) * self.options.trials, len(SETTINGS) * self.orch_trials

    def run(self, stop: Stop) -> None:
        """Half of the example's trials, orch's sweep, the other half; less if it is stopped."""
        half = self.options.trials // 2
        steps: list[Callable[[Stop], None]] = [self._example] * (self.options.trials - half)
        for step in [*steps, self._orch, *[self._example] * half]:
            step(stop)

    def _example(self, stop: Stop) -> None:
        """One trial of the example's loop, a command a setting."""
        options, rows = self.options, self.folder / "offload_states.log"
        for pin_memory, non_blocking in SETTINGS:
            command = [deepspeed_command(), f"--num_gpus={options.num_gpus}", str(self.script)]
            command += ["--hidden_dim", str(options.hidden_dim), "--nlayers", str(options.nlayers)]
            command += ["--pin_memory"] * pin_memory + ["--non_blocking"] * non_blocking
            began = time.monotonic()
            with (self.folder / "example.txt").open("ab") as log:
                status = stop.tree(command, log, self.folder, EXAMPLE_TIMEOUT_S)
            wall_s = time.monotonic() - began
            if status is None:
                return
            if status:
                raise subprocess.CalledProcessError(status, command)
            offload_s, load_s = map(float, rows.read_text().split()[-1].split(",")[2:4])
            self.example.append(
                Example((pin_memory, non_blocking), wall_s, ITERATIONS * (offload_s + load_s))
            )
            self.save()

    def _orch(self, stop: Stop) -> None:
        """All trials by orch."""
        options = self.options
        command = [*orch(), "sweep", str(SWEEP), "--db", str(self.database), "--name", options.name]
        for setting in (
            f"repeats={self.orch_trials}",
            f"num_gpus={options.num_gpus}",
            f"hidden_dim={options.hidden_dim}",
            f"nlayers={options.nlayers}",
            *options.set,
        ):
            command += ["--set", setting]
        command += ["--no-probe", *(["--gpus", options.gpus] if options.gpus else [])]
        self.began_at, began = time.time(), time.monotonic()
        with (self.folder / "orch.txt").open("ab") as log:
            status = stop.orch(command, log)
        if status == 0:
            self.wall_s = time.monotonic() - began
        if self.database.exists():
            self.jobs = read_jobs(self.database, options.name)
        self.save()
        if status:
            raise subprocess.CalledProcessError(status, command)

    def found(self) -> Figures:
        """The figures of what there is."""
        wall_s = self.wall_s
        if wall_s is None:
            wall_s = max((seconds(job["ended_at"]) - self.began_at for job in self.jobs), default=0.0)
        return figures(self.example, self.jobs, self.began_at, wall_s)

    def save(self) -> None:
        """Put what there is in the place of what was saved before."""
        if self.options.save:
            said = document(self.example, self.jobs, self.found(), self.asked)
            write_whole(self.options.save, json.dumps(said, indent=1) + "\n")


def deepspeed_command() -> str:
    """The ``deepspeed`` command of this Python, else the one on PATH."""
    own = Path(sys.executable).with_name("deepspeed")
    return str(own) if own.exists() else "deepspeed"


def orch() -> list[str]:
    """The command, of this checkout."""
    return [sys.executable, "-m", "orchestrator"]


def read_jobs(database: Path, name: str) -> list[dict[str, Any]]:
    """The jobs that orch ran well, in the order in which it ran them."""
    command = [*orch(), "sql", JOBS.format(name=name), "--db", str(database), "--json"]
    # A session of its own, so that a signal to this process' group leaves it alone.
    answer = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    rows: list[dict[str, Any]] = json.loads(answer.stdout)
    return rows


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
    comparison = Comparison(options, script, folder, options.db or folder / "orch.db")
    with Stop() as stop:
        comparison.run(stop)
        tell(comparison)
    sys.exit(1 if stop.asked else 0)


def tell(comparison: Comparison) -> None:
    """Print what there is."""
    found, asked = asdict(comparison.found()), comparison.asked
    print("seconds a job; calls: timed ones; checks: between them; rest: outside the loop, of the example")
    print("also its steps and what its first iteration takes beyond a warm one\n")
    print("\n".join(settings_table(comparison.example, comparison.jobs)), "\n")
    for name, value in found.items():
        print(f"{name:26s} {'–' if value is None else format(value, '.3f'):>10s}")
    print(json.dumps(found))
    theirs, ours = len(comparison.example), len(comparison.jobs)
    if (theirs, ours) != asked:
        print(f"cut short: {theirs} of {asked[0]} commands of the example, {ours} of {asked[1]} jobs of orch")


if __name__ == "__main__":
    main()
