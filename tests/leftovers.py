"""Nothing of a test's servers outlives it, even where the run is killed half-way.

``watched`` starts a small process that waits for the end of a pipe, which comes with the end of the test
run however it ends; then it ends the daemons of one folder and removes the folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DAEMONS = frozenset({"slurmctld", "slurmd", "munged", "postgres", "slurmdbd", "mariadbd"})
LIMIT_S = 20.0


@contextmanager
def watched(folder: Path, marker: str) -> Iterator[None]:
    """While the block runs, and after it at the latest, somebody cleans up.

    Args:
        folder: removed at the end; pid files in it, or a PostgreSQL data folder, name daemons.
        marker: ``NAME=value`` that no process but this folder's has in its environment.
    """
    watcher = subprocess.Popen(
        [sys.executable, "-m", "tests.leftovers", str(folder), marker],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait(2 * LIMIT_S)


def end_processes(folder: Path, marker: str) -> None:
    """Kill what belongs to the folder, until nothing is left."""
    deadline_s = time.monotonic() + LIMIT_S
    while (found := daemons(folder) | marked(marker)) and time.monotonic() < deadline_s:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if _name(pid) == "postgres" else signal.SIGKILL)
        time.sleep(0.05)


def daemons(folder: Path) -> set[int]:
    """Living daemons that the folder's pid files name."""
    found = set()
    for file in [*folder.glob("*.pid"), folder / "data" / "postmaster.pid"]:
        with suppress(OSError, ValueError, IndexError):
            pid = int(file.read_text().split()[0])
            if _name(pid) in DAEMONS and _is_alive(pid):
                found.add(pid)
    return found


def marked(marker: str) -> set[int]:
    """Living processes that have been started with the marker, but for this one and its like."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        with suppress(OSError):
            if b"tests.leftovers" in (entry / "cmdline").read_bytes():
                continue
            if marker.encode() in (entry / "environ").read_bytes().split(b"\0") and _is_alive(pid):
                found.add(pid)
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    """Wait for the end of the input, then clean up."""
    folder, marker = Path(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_processes(folder, marker)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
