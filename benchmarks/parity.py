"""Do ``fork``, ``spawn`` and ``deepspeed`` measure the same? The same cells through all three, in one run.

    python -m benchmarks.parity --hidden-dim 4096 --nlayers 8 --rounds 6
    python -m benchmarks.parity --set pin_memory=true --folder KEPT --rounds 12 --limit-s 500    and continued

The launchers take turns round by round, so that a drift of the machine meets all. Equal must be, cell by
cell: the losses, the copied and freed bytes, and (within 0.5 %) the number of objects that Python's
collector tracks. Of the times it prints the ratio to ``deepspeed``'s of offload and reload, pooled over the
cells: the median over rounds and a bootstrap interval of 90 %, which is to lie inside ±3 %. Below stands
the same of each cell by itself, and of the collection in an offload where the cells have ``instrumented``
iterations.

``--rounds`` counts all rounds in the database of ``--folder``: a later call adds what is missing, on another
machine too. A round counts when all its jobs are there, of every launcher, and ran on one device. With
``--limit-s`` no round is begun that would not end in time, by the longest so far; if there are fewer than
four then, no verdict is given. SIGTERM or SIGINT ends the round that runs and judges those before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.parity_figures import (
    FEWEST_ROUNDS,
    METRICS,
    REFERENCE,
    Found,
    differences,
    judged,
    whole_rounds,
)
from benchmarks.stopping import Stop, write_whole

ROOT = Path(__file__).resolve().parent.parent
SOME_JOB_FAILED = 1

SPEC = """
name: parity
defaults:
  {{hidden_dim: {hidden_dim}, nlayers: {nlayers}, num_gpus: {num_gpus}, iteration: {iteration}, warmup: 3}}
matrix:
  pin_memory: [true, false]
  gc_freeze: [false, true]
order: sequential
limits: {{retries: 0}}
"""

QUERY = """
SELECT j.cell, j.repeat, j.pin_memory, j.gc_freeze, j.status, r.offload_s_median, r.reload_s_median,
       r.copied_bytes, r.freed_bytes, a.tracked_objects, a.launch_mode, a.host, a.device_uuids,
       (SELECT MAX(i.loss) FROM iteration i WHERE i.attempt_id = r.attempt_id AND i.rank = 0
        AND i.iteration = j.iteration - 1) AS loss,
       (SELECT AVG(i.offload_gc_s) FROM iteration i WHERE i.attempt_id = r.attempt_id) AS offload_gc_s
FROM job j JOIN sweep s ON s.sweep_id = j.sweep_id
LEFT JOIN job_result r ON r.job_id = j.job_id LEFT JOIN attempt a ON a.attempt_id = r.attempt_id
WHERE s.name = 'parity-{launcher}' AND j.in_spec
"""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Runs rounds into the database of a folder and reads what is there.

    Attributes:
        words: for every ``orch sweep``.
    """

    folder: Path
    launchers: Sequence[str]
    words: Sequence[str]

    @property
    def spec(self) -> Path:
        """The sweep file of every launcher."""
        return self.folder / "parity.yaml"

    @property
    def database(self) -> Path:
        """Holds a sweep a launcher."""
        return self.folder / "parity.db"

    def run(self, wanted: int, limit_s: float, stop: Stop) -> None:
        """Add rounds until there are so many, or until the next would end behind the limit.

        Each round adds one repeat to each launcher's sweep, and the launchers take turns in being first.
        """
        until, longest_s = time.monotonic() + limit_s, 0.0
        done = len(whole_rounds(self.read()))
        for number in range(self._begun() + 1, self._begun() + 1 + wanted - done):
            began = time.monotonic()
            if stop.asked or began + longest_s > until:
                break
            first = number % len(self.launchers)
            for launcher in (*self.launchers[first:], *self.launchers[:first]):
                self._sweep(launcher, number, stop)
                print(f"round {number}: {launcher}", file=sys.stderr, flush=True)
            longest_s = max(longest_s, time.monotonic() - began)

    def _begun(self) -> int:
        """The last round of which all launchers have something; one that was cut short is completed."""
        found = self.read()
        return min(max((number for _, number in rows), default=0) for rows in found.values())

    def _sweep(self, launcher: str, number: int, stop: Stop) -> None:
        command = [sys.executable, "-m", "orchestrator", "sweep", str(self.spec), "--db", str(self.database)]
        command += ["--name", f"parity-{launcher}", "--launcher", launcher, "--set", f"repeats={number}"]
        with (self.folder / "orch.txt").open("ab") as log:
            status = stop.orch([*command, "--no-probe", "--quiet", *self.words], log)
        # A job that fails makes its round incomplete, and is among the problems.
        if status not in (None, 0, SOME_JOB_FAILED):
            raise subprocess.CalledProcessError(status, command)

    def read(self) -> Found:
        """Launcher → (cell, round) → figures."""
        found: Found = {launcher: {} for launcher in self.launchers}
        if not self.database.exists():
            return found
        command = [sys.executable, "-m", "orchestrator", "sql", "--db", str(self.database), "--json"]
        for launcher in self.launchers:
            answer = subprocess.run(
                [*command, QUERY.format(launcher=launcher)],
                capture_output=True, text=True, check=True, start_new_session=True,
            )  # fmt: skip
            found[launcher] = {(row["cell"], row["repeat"]): row for row in json.loads(answer.stdout)}
        return found


def main() -> None:
    """Runs the rounds and judges; exit status 1 if the launchers differ or rounds are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hidden-dim", type=int, default=4096)
    parser.add_argument("--nlayers", type=int, default=8)
    parser.add_argument("--num-gpus", type=int, default=1)
    parser.add_argument("--iteration", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6, help=f"in all, at least {FEWEST_ROUNDS}")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="of this call's rounds")
    parser.add_argument("--set", action="append", default=[], metavar="AXIS=VALUE", help="of every sweep")
    parser.add_argument("--launchers", default="spawn,fork", help=f"to compare with {REFERENCE}")
    parser.add_argument("--gpus", help="devices to use (default: all)")
    parser.add_argument("--save", type=Path, help="a file for what was found, as JSON")
    parser.add_argument("--folder", type=Path, help="where the database goes (default: a temporary one)")
    options = parser.parse_args()
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds: at least {FEWEST_ROUNDS}, or the interval says nothing")
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="orch-parity-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    words = [word for setting in options.set for word in ("--set", setting)]
    words += ["--gpus", options.gpus] if options.gpus else []
    rounds = Rounds(folder, (REFERENCE, *options.launchers.split(",")), words)
    rounds.spec.write_text(SPEC.format(**vars(options)))
    with Stop() as stop:
        rounds.run(options.rounds, options.limit_s, stop)
        found = rounds.read()
    about = {name: getattr(options, name) for name in ("hidden_dim", "nlayers", "num_gpus", "iteration")}
    sys.exit(tell({**about, "set": options.set}, found, options.save))


def tell(about: dict[str, Any], found: Found, save: Path | None) -> int:
    """Print and save the verdict; the exit status."""
    whole = whole_rounds(found)
    missing = max(FEWEST_ROUNDS - len(whole), 0)
    problems = differences(found, whole)
    ratios = [] if missing else judged(found, whole)
    pooled = [row for row in ratios if row["cell"] == "all" and row["metric"] in METRICS]
    for row in ratios:
        verdict = ("inside" if row["inside"] else "not inside") + " ±3%" if row in pooled else ""
        print(f"{row['launcher']:6s} {row['metric']:17s} {row['cell']:28s} ratio {row['ratio']:.4f}"
              f"  90 % {row['low']:.4f} to {row['high']:.4f}  ({row['pairs']} pairs)  {verdict}")  # fmt: skip
    problems += [
        f"{row['launcher']}: {row['metric']} is not within 3%" for row in pooled if not row["inside"]
    ]
    if save:
        said = {
            **about, "rounds": len(whole), "missing_rounds": missing, "ratios": pooled,
            "cells": [row for row in ratios if row not in pooled], "problems": problems,
        }  # fmt: skip
        write_whole(save, json.dumps(said, indent=1) + "\n")
    agree = "losses, bytes and tracked objects agree"
    print("\n".join(problems) or (f"{agree} in {len(whole)} rounds" if whole else "no round is whole"))
    if missing:
        print(f"no verdict: {missing} of {FEWEST_ROUNDS} rounds are missing")
    return 1 if problems or missing else 0


if __name__ == "__main__":
    main()
