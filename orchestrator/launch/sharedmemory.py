"""What do dead ranks leave in ``/dev/shm``, and is it ours to remove?

By name: torch puts the process into its files' names, DeepSpeed's CPU op the rendezvous port, which was
leased. By use: what a rank had mapped before it was ended, of the names that libraries make up by
themselves; a data set that somebody keeps there is nobody's leftover. Never what a living process holds.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import Path

from orchestrator.launch.holders import holders_of, mapped_in
from orchestrator.launch.processes import is_running

SHARED_MEMORY = Path("/dev/shm")
LIBRARY_NAMES = ("deepspeed_*", "sem.deepspeed_*", "nccl-*", "torch_*")
"""Names of DeepSpeed, NCCL and torch."""

_PID_IN_NAME = re.compile(r"^torch_(\d+)_")
_PORT_IN_NAME = re.compile(r"^deepspeed_allreduce_buffer_.*_(\d+)_\d+$")


def used_by(pids: Iterable[int]) -> set[Path]:
    """Shared memory of the libraries that one of the processes has mapped now."""
    mapped = mapped_in(str(SHARED_MEMORY), pids)
    return {path for path in mapped if any(fnmatch(path.name, pattern) for pattern in LIBRARY_NAMES)}


def remove_shared_memory(
    pids: Collection[int], ports: Collection[int] = (), used: Collection[Path] = ()
) -> list[Path]:
    """Remove what an attempt has left behind; the files removed.

    Args:
        pids: its processes, dead by now.
        ports: what was leased for it.
        used: what ``used_by`` had found before they were ended.
    """
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(SHARED_MEMORY):
            by_pid, by_port = _PID_IN_NAME.match(name), _PORT_IN_NAME.match(name)
            if (
                (by_pid and int(by_pid[1]) in pids and not is_running(int(by_pid[1])))
                or (by_port and int(by_port[1]) in ports)
                or (used and SHARED_MEMORY / name in used)
            ):
                found.append(SHARED_MEMORY / name)
    removed = []
    # Looking through all processes takes a while: only where there is something to remove.
    held = holders_of(found) if found else {}
    for path in found:
        if path not in held:
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed
