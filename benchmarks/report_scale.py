"""How long reports take on a large database, and how much memory: ``python -m benchmarks.report_scale``.

The default is 10,000 jobs of 10 iterations on 8 ranks: 800,000 iterations and 4.8 million memory samples of
invented figures. Targets on two cores: report 2 s, status 0.5 s, HTML 5 s and 8 MB, 500 MB of memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.fixtures.make_results import Writer, large_plan

TARGETS = {"status": 0.5, "report": 2.0, "report --format csv": 2.0, "report --format html": 5.0}
MEMORY_TARGET_BYTES, HTML_TARGET_BYTES = 500_000_000, 8_000_000


def main() -> int:
    """Print a line a command; 1 if a target is missed at the default size or below."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="the fastest of so many counts")
    parser.add_argument("--folder", type=Path, default=Path(".scratch"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"report_{options.jobs}x{options.iterations}x{options.ranks}.db"
    if not path.exists():
        began = time.monotonic()
        writer = Writer(path.with_suffix(".part"))
        writer.sweep("large", large_plan(options.jobs, options.ranks, options.iterations))
        writer.close()
        path.with_suffix(".part").replace(path)
        print(f"made {path} in {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e9:.2f} GB")
    missed = [name for name, target in TARGETS.items() if not _measure(name, target, path, options.rounds)]
    return int(bool(missed))


def _measure(name: str, target_s: float, path: Path, rounds: int) -> bool:
    target_file = path.with_suffix("." + name.rpartition(" ")[2])
    extra = ["-o", str(target_file)] if name.startswith("report") else []
    command = [sys.executable, "-m", "orchestrator", *name.split(), "--db", str(path), *extra]
    times, processor, peaks = zip(*(_run(command) for _ in range(rounds)), strict=True)
    best, peak = min(times), max(peaks)
    size = target_file.stat().st_size if extra else 0
    good = best <= target_s and peak <= MEMORY_TARGET_BYTES
    if name.endswith("html"):
        good = good and size <= HTML_TARGET_BYTES
    times_text = f"{best:6.2f} s (target {target_s}; processor {min(processor):.2f} s)"
    sizes_text = f"peak {peak / 1e6:4.0f} MB · file {size / 1e6:5.2f} MB"
    print(f"{name:22} {times_text} · {sizes_text} · {'ok' if good else 'MISSED'}")
    return bool(good)


def _run(command: list[str]) -> tuple[float, float, int]:
    """Seconds on the clock, seconds of processor, and peak resident bytes of one command."""
    began = time.monotonic()
    with open(os.devnull, "w") as nowhere:
        pid = os.posix_spawn(command[0], command, dict(os.environ),
                             file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)])  # fmt: skip
        _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
