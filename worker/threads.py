"""Which threads does this process have? A fork server may only ever have one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def thread_count() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


def thread_names() -> list[str]:
    """What the kernel calls the threads of this process, the main one first."""
    names = []
    for task in sorted(os.listdir("/proc/self/task"), key=int):
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
    return names
