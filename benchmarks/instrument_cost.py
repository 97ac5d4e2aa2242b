"""What do recorder, checksums and the 50 Hz sampler do to the times beside them? Measured within a process.

    python -m benchmarks.instrument_cost --hidden-dim 4096 8192 --blocks 60 40

Jobs of one cell differ by more than the instrument costs. So here one process, with one engine and one set
of pinned buffers, has iterations that take turns in shuffled blocks: with nothing but the clock, with the
recorder, with checksums, with the sampler, with all of it. Each is compared with the bare iteration of its
block; the figure is the median of these differences, with a bootstrap interval of 90 % over the blocks.
Python's collector, which scatters more than all of it costs, is kept out (``gc_freeze``).

The exit status is 1 if a median difference is not within 1 % of the bare median.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.stopping import Stop, write_whole
from benchmarks.turns import WARMUP, Turn, iterations_of, order

ROOT = Path(__file__).resolve().parent.parent
CALLS = ("offload_s", "reload_s")
LIMIT_SHARE = 0.01
RESAMPLES = 4000
SOME_JOB_FAILED = 1

SPEC = """
name: instrument_cost
defaults:
  {{nlayers: {nlayers}, non_blocking: true, reload_non_blocking: true, gc_freeze: true, warmup: {warmup},
    pin_backend: "host_register:16", checksums: true, sampler_hz: 50}}
zip:
  - hidden_dim: {hidden_dim}
    iteration: {iterations}
order: sequential
limits: {{retries: 0}}
launcher: {{name: fork, worker: "benchmarks.alternating_worker:main"}}
"""

QUERY = """
SELECT j.hidden_dim, j.iteration AS iterations, i.iteration, i.offload_s, i.reload_s
FROM iteration i JOIN attempt a ON a.attempt_id = i.attempt_id JOIN job j ON j.job_id = a.job_id
WHERE a.status = 'ok' AND i.rank = 0
ORDER BY j.position, i.iteration
"""

Times = dict[Turn, dict[str, list[float]]]
"""Turn → call → seconds, a value a block."""


@dataclass(frozen=True, slots=True)
class Cost:
    """How much longer a call takes beside a part of the instrument than bare.

    Attributes:
        iterations: with the part, and as many bare ones.
        low_share: lower end of the 90 % interval of ``difference_share``.
    """

    hidden_dim: int
    turn: Turn
    call: str
    iterations: int
    bare_s: float
    difference_s: float
    difference_share: float
    low_share: float
    high_share: float


def by_turn(rows: Sequence[dict[str, Any]]) -> dict[int, Times]:
    """Hidden dimension → times of the iterations behind the warm-up."""
    found: dict[int, Times] = {}
    turns = {count: order(count) for count in {row["iterations"] for row in rows}}
    for row in rows:
        if row["iteration"] >= WARMUP:
            empty: Times = {turn: {call: [] for call in CALLS} for turn in Turn}
            mine = found.setdefault(row["hidden_dim"], empty)[turns[row["iterations"]][row["iteration"]]]
            for call in CALLS:
                mine[call].append(row[call])
    return found


def costs(hidden_dim: int, times: Times) -> list[Cost]:
    """What each part does to each call."""
    found = []
    for turn in list(Turn)[1:]:
        for call in CALLS:
            bare = times[Turn.BARE][call]
            differences = [
                with_s - without_s for with_s, without_s in zip(times[turn][call], bare, strict=True)
            ]
            bare_s, middle_s = median(bare), median(differences)
            low_s, high_s = interval(differences)
            found.append(
                Cost(
                    hidden_dim, turn, call, len(differences), bare_s, middle_s, middle_s / bare_s,
                    low_s / bare_s, high_s / bare_s,
                )
            )  # fmt: skip
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap interval of 90 % of the median."""
    generator = random.Random(0)
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 20], medians[-RESAMPLES // 20]


def measure(options: argparse.Namespace, folder: Path, stop: Stop) -> list[dict[str, Any]]:
    """Run a process a size, the sizes as they were given; the iterations of those that came to an end."""
    spec, database = folder / "instrument_cost.yaml", folder / "instrument_cost.db"
    spec.write_text(
        SPEC.format(
            nlayers=options.nlayers, warmup=WARMUP, hidden_dim=options.hidden_dim,
            iterations=[iterations_of(blocks) for blocks in options.blocks],
        )
    )  # fmt: skip
    orch = [sys.executable, "-m", "orchestrator"]
    command = [*orch, "sweep", str(spec), "--db", str(database), "--no-probe", "--quiet"]
    command += [word for setting in options.set for word in ("--set", setting)]
    command += ["--gpus", options.gpus] if options.gpus else ["--slots", "1"]
    with (folder / "orch.txt").open("ab") as log:
        status = stop.orch(command, log)
    if status not in (None, 0, SOME_JOB_FAILED) or not database.exists():
        raise subprocess.CalledProcessError(status or 1, command)
    answer = subprocess.run(
        [*orch, "sql", QUERY, "--db", str(database), "--json"],
        capture_output=True, text=True, check=True, start_new_session=True,
    )  # fmt: skip
    rows: list[dict[str, Any]] = json.loads(answer.stdout)
    return rows


def main() -> None:
    """Measures, prints a line a size, part and call; see above for the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hidden-dim", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--blocks", type=int, nargs="+", default=[60, 40], help="one number a size")
    parser.add_argument("--nlayers", type=int, default=8)
    parser.add_argument("--set", action="append", default=[], metavar="AXIS=VALUE", help="of the sweep")
    parser.add_argument("--gpus", help="the device to use (default: the first free; on a CPU none)")
    parser.add_argument("--save", type=Path, help="a file for what was found, as JSON")
    parser.add_argument("--folder", type=Path, help="where database and logs go (default: temporary)")
    options = parser.parse_args()
    if len(options.hidden_dim) != len(options.blocks):
        parser.error("--blocks: one number for each --hidden-dim")
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="orch-instrument-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with Stop() as stop:
        times = by_turn(measure(options, folder, stop))
    sys.exit(tell(times, options))


def tell(times: dict[int, Times], options: argparse.Namespace) -> int:
    """Print and save what was found; the exit status."""
    found = [cost for hidden_dim, mine in times.items() for cost in costs(hidden_dim, mine)]
    for cost in found:
        print(
            f"{cost.hidden_dim:6d}  {cost.turn:9s}  {cost.call.removesuffix('_s'):7s}"
            f"  {1e3 * cost.difference_s:+8.3f} ms of {1e3 * cost.bare_s:8.3f} ms"
            f"  {cost.difference_share:+7.2%}  90 % {cost.low_share:+.2%} to {cost.high_share:+.2%}"
            f"  ({cost.iterations} iterations)"
        )
    missing = [size for size in options.hidden_dim if size not in times]
    problems = [f"hidden_dim {size}: its process did not come to an end" for size in missing]
    problems += [
        f"hidden_dim {cost.hidden_dim}: {cost.call.removesuffix('_s')} with {cost.turn} is not within"
        f" {LIMIT_SHARE:.0%} of bare"
        for cost in found if abs(cost.difference_share) > LIMIT_SHARE
    ]  # fmt: skip
    if options.save:
        said = {
            "nlayers": options.nlayers, "limit_share": LIMIT_SHARE, "problems": problems,
            "costs": [asdict(cost) for cost in found], "times": _rounded(times),
        }  # fmt: skip
        write_whole(options.save, json.dumps(said, indent=1) + "\n")
    print("\n".join(problems) or f"all within {LIMIT_SHARE:.0%}")
    return 1 if problems else 0


def _rounded(times: dict[int, Times]) -> dict[int, dict[str, dict[str, list[float]]]]:
    """To a tenth of a microsecond, for a file to keep."""
    return {
        size: {
            turn: {call: [round(value, 7) for value in values] for call, values in calls.items()}
            for turn, calls in mine.items()
        }
        for size, mine in times.items()
    }


if __name__ == "__main__":
    main()
