"""What does orch itself take? Its processor time while jobs run, and its memory over many jobs.

    python -m benchmarks.own_cost [--seconds 30] [--ranks 8] [--jobs 100 1000 10000]

First line: ranks that write a record a second; the processor time of orch, its supervisor and its fork
server meanwhile, as a share of one core. Then, for each number of jobs whose worker does nothing: the
memory of each of the three after a fifth of the time and at the end. A sweep's jobs are planned and
written before the first one starts, so a larger sweep begins higher; while it runs only SQLite's page
cache fills, 16 MB at most for each connection.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.throughput import ROOT, write_spec

OWN = ("orch", "supervisor", "fork server")
_BEGINNING_S = 5.0
"""Start-up is not what is asked."""


@contextmanager
def sweeping(folder: Path, spec: Path, slots: int) -> Iterator[subprocess.Popen[bytes]]:
    """``orch sweep`` while the block runs."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ORCH_STATE_DIR": str(folder / "state"),
        "DS_ACCELERATOR": "cpu",
    }
    command = [sys.executable, "-m", "orchestrator", "sweep", str(spec), "--db", str(folder / "orch.db"),
               "--slots", str(slots)]  # fmt: skip
    with (folder / "orch.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def own_processes(orch: int) -> dict[str, psutil.Process]:
    """Orch, its supervisor, its fork server, as far as they are there."""
    found = {}
    try:
        found["orch"] = psutil.Process(orch)
        found["supervisor"] = found["orch"].children()[0]
        found["fork server"] = found["supervisor"].children()[0]
    except (psutil.NoSuchProcess, IndexError):
        pass
    return found


def cpu_s(processes: dict[str, psutil.Process]) -> dict[str, float]:
    """Processor time so far, children left out."""
    times = {name: process.cpu_times() for name, process in processes.items()}
    return {name: used.user + used.system for name, used in times.items()}


def measure_cpu(seconds: float, ranks: int) -> None:
    """Print the share of a core that orch takes beside ``ranks`` jobs."""
    with tempfile.TemporaryDirectory(prefix="orch-own-") as name:
        folder = Path(name)
        spec = folder / "dwelling.yaml"
        spec.write_text(
            f"name: dwelling\nrepeats: {ranks}\ndefaults: {{iteration: 10000, warmup: 0, dwell_s: 1}}\n"
            "limits: {timeout: 3600}\n"
            "launcher: {name: fork, worker: 'benchmarks.noop_worker:dwelling'}\n"
        )
        with sweeping(folder, spec, ranks) as orch:
            time.sleep(_BEGINNING_S)
            processes = own_processes(orch.pid)
            before, since_s = cpu_s(processes), time.monotonic()
            time.sleep(seconds)
            after, took_s = cpu_s(processes), time.monotonic() - since_s
    if len(processes) < len(OWN):
        sys.exit(f"only {', '.join(processes)} of {', '.join(OWN)} to be seen")
    shares = {name: 100 * (after[name] - before[name]) / took_s for name in OWN}
    each = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    print(
        f"{ranks} ranks, a record a second, {took_s:.0f} s: {sum(shares.values()):.2f} % of a core ({each})"
    )


def measure_memory(jobs: int, slots: int = 8) -> None:
    """Print the memory of orch's processes over so many jobs."""
    seen: dict[str, list[float]] = {own: [] for own in OWN}
    with tempfile.TemporaryDirectory(prefix="orch-own-") as name:
        folder = Path(name)
        with sweeping(folder, write_spec(folder, jobs), slots) as orch:
            while orch.poll() is None:
                for own, process in own_processes(orch.pid).items():
                    with suppress(psutil.NoSuchProcess):
                        memory = process.memory_info()
                        # Pages of the database that are mapped are the file's; a zombie has none at all.
                        if private := memory.rss - memory.shared:
                            seen[own].append(private / 1e6)
                time.sleep(0.1)
        if orch.returncode:
            sys.exit(f"exit status {orch.returncode}: {(folder / 'orch.log').read_text()}")
    figures = [f"{own} {sizes[len(sizes) // 5]:.1f} -> {sizes[-1]:.1f} MB" for own, sizes in seen.items()]
    print(f"{jobs:6d} jobs: {', '.join(figures)}", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--jobs", type=int, nargs="*", default=[100, 1000, 10_000])
    options = parser.parse_args()
    if options.seconds:
        measure_cpu(options.seconds, options.ranks)
    for jobs in options.jobs:
        measure_memory(jobs)


if __name__ == "__main__":
    main()
