"""What the kernel says about this process and its control group. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def cgroup_memory_file() -> Path | None:
    """The file that holds this control group's memory use (version 2 or 1); None if there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        candidates = []
        if not controllers:
            root = Path("/sys/fs/cgroup")
            candidates = [root / path.lstrip("/") / "memory.current", root / "memory.current"]
        elif "memory" in controllers.split(","):
            root = Path("/sys/fs/cgroup/memory")
            candidates = [root / path.lstrip("/") / "memory.usage_in_bytes", root / "memory.usage_in_bytes"]
        for candidate in candidates:
            if candidate.exists():
                return candidate
    return None


def cgroup_bytes(file: Path | None) -> int | None:
    """Memory use of the control group; None if it cannot be read."""
    try:
        return None if file is None else int(file.read_text())
    except (OSError, ValueError):
        return None
