"""Do ``fork``, ``spawn`` and ``deepspeed`` measure the same? The same cells through all three, in one run.

    python -m benchmarks.parity --hidden-dim 4096 --nlayers 8 --rounds 6
    python -m benchmarks.parity --set pin_memory=true --launchers fork --folder KEPT     less, and continued

The launchers take turns round by round, so that a drift of the machine meets all. Equal must be, cell by
cell: the losses, the copied and freed bytes, and (within 0.5 %) the number of objects that Python's
collector tracks. Of the times it prints the ratio to ``deepspeed``'s of offload and reload, pooled over the
cells: the median over rounds and a bootstrap interval of 90 %, which is to lie inside ±3 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

REFERENCE = "deepspeed"
LIMIT = 0.03
TRACKED_LIMIT = 0.005
RESAMPLES = 4000
FEWEST_ROUNDS = 4
"""With fewer the interval says nothing."""
ROOT = Path(__file__).resolve().parent.parent

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
SELECT j.cell, j.repeat, r.offload_s_median, r.reload_s_median, r.copied_bytes, r.freed_bytes,
       a.tracked_objects, a.launch_mode, j.status,
       (SELECT MAX(i.loss) FROM iteration i WHERE i.attempt_id = r.attempt_id AND i.rank = 0
        AND i.iteration = j.iteration - 1) AS loss
FROM job j JOIN sweep s ON s.sweep_id = j.sweep_id
LEFT JOIN job_result r ON r.job_id = j.job_id LEFT JOIN attempt a ON a.attempt_id = r.attempt_id
WHERE s.name = 'parity-{launcher}'
"""


def orch(*arguments: str, folder: Path) -> str:
    """Standard output of an orch command run in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "orchestrator", *arguments, "--db", str(folder / "parity.db")]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def run_rounds(rounds: int, spec: Path, words: list[str], launchers: Sequence[str]) -> None:
    """Each round adds one repeat to each launcher's sweep; ``words`` go to every ``orch sweep``."""
    for number in range(1, rounds + 1):
        for launcher in launchers:
            orch(
                "sweep", str(spec), "--name", f"parity-{launcher}", "--launcher", launcher,
                "--set", f"repeats={number}", "--no-probe", "--quiet", *words, folder=spec.parent,
            )  # fmt: skip
            print(f"round {number}/{rounds}: {launcher}", file=sys.stderr, flush=True)


def read(folder: Path, launchers: Sequence[str]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """Launcher → (cell, round) → figures."""
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for launcher in launchers:
        rows = json.loads(orch("sql", QUERY.format(launcher=launcher), "--json", folder=folder))
        found[launcher] = {(row["cell"], row["repeat"]): row for row in rows}
    return found


def differences(found: dict[str, dict[tuple[str, int], dict[str, Any]]]) -> list[str]:
    """What is not equal across launchers, a line each."""
    lines = []
    for key, reference in found[REFERENCE].items():
        for launcher in found:
            row = found[launcher][key]
            where = f"{launcher}, cell {key[0][3:9]}, round {key[1]}"
            if row["status"] != "ok" or row["launch_mode"] != launcher:
                lines.append(f"{where}: {row['status']}, launched by {row['launch_mode']}")
                continue
            for name in ("loss", "copied_bytes", "freed_bytes"):
                # On a CPU "freed" is the process' resident memory: nothing to compare.
                if row[name] != reference[name] and not (name == "freed_bytes" and not on_gpu(reference)):
                    lines.append(f"{where}: {name} {row[name]} instead of {reference[name]}")
            tracked, wanted = row["tracked_objects"], reference["tracked_objects"]
            if abs(tracked - wanted) > TRACKED_LIMIT * wanted:
                lines.append(f"{where}: {tracked} tracked objects instead of {wanted}")
    return lines


def on_gpu(row: dict[str, Any]) -> bool:
    """Whether a GPU gave memory back."""
    return (row["freed_bytes"] or 0) >= (row["copied_bytes"] or 0) > 0


def ratios(
    found: dict[str, dict[tuple[str, int], dict[str, Any]]], launcher: str, metric: str
) -> tuple[float, float, float, int]:
    """Median ratio to the reference, its 90 % interval, and the number of pairs."""
    by_cell: dict[str, list[float]] = defaultdict(list)
    for key, reference in found[REFERENCE].items():
        row = found[launcher][key]
        if row[metric] and reference[metric]:
            by_cell[key[0]].append(row[metric] / reference[metric])
    pairs = [value for values in by_cell.values() for value in values]
    generator = random.Random(0)
    # Resampled within each cell: cells differ in their scatter, rounds are what repeats.
    medians = sorted(
        median([generator.choice(values) for values in by_cell.values() for _ in values])
        for _ in range(RESAMPLES)
    )
    return median(pairs), medians[RESAMPLES // 20], medians[-RESAMPLES // 20], len(pairs)


def main() -> None:
    """Runs the rounds and judges; exit status 1 if the launchers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hidden-dim", type=int, default=4096)
    parser.add_argument("--nlayers", type=int, default=8)
    parser.add_argument("--num-gpus", type=int, default=1)
    parser.add_argument("--iteration", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=6, help=f"at least {FEWEST_ROUNDS}")
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
    spec = folder / "parity.yaml"
    spec.write_text(SPEC.format(**vars(options)))
    words = [word for setting in options.set for word in ("--set", setting)]
    words += ["--gpus", options.gpus] if options.gpus else []
    launchers = [REFERENCE, *options.launchers.split(",")]
    run_rounds(options.rounds, spec, words, launchers)
    found = read(folder, launchers)
    problems = differences(found)
    saved = []
    for launcher in launchers[1:]:
        for metric in ("offload_s_median", "reload_s_median"):
            middle, low, high, pairs = ratios(found, launcher, metric)
            inside = low >= 1 - LIMIT and high <= 1 + LIMIT
            verdict = "inside" if inside else "not inside"
            print(f"{launcher:6s} {metric:17s} ratio {middle:.4f}  90 % {low:.4f} to {high:.4f}  "
                  f"({pairs} pairs)  {verdict} ±{LIMIT:.0%}")  # fmt: skip
            saved.append({"launcher": launcher, "metric": metric, "ratio": middle, "low": low, "high": high,
                          "pairs": pairs})  # fmt: skip
            if not inside:
                problems.append(f"{launcher}: {metric} is not within {LIMIT:.0%}")
    if options.save:
        about = {name: getattr(options, name) for name in ("hidden_dim", "nlayers", "num_gpus", "rounds")}
        text = json.dumps({**about, "ratios": saved, "problems": problems}, indent=1)
        options.save.write_text(text + "\n", encoding="utf-8")
    print("\n".join(problems) or "losses, bytes and tracked objects agree")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
