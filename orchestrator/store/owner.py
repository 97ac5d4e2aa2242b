"""Who supervises an attempt, and does it still live? ``host:pid:start``.

The start time (clock ticks since boot) tells a process from a later one with the same pid.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.store.rows import AttemptRow

LEASE_S = 60.0
"""An owner on another host whose heartbeat is older than this, by the database's clock, is gone."""


def this_owner(pid: int | None = None) -> str:
    """The owner string of this process, or of process ``pid`` of this host."""
    pid = os.getpid() if pid is None else pid
    return f"{socket.gethostname()}:{pid}:{start_ticks(pid) or 0}"


def start_ticks(pid: int) -> int | None:
    """When the process started, clock ticks since boot; None if there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command's name is in parentheses and may hold anything, so count from the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def process_is_alive(owner: str) -> bool | None:
    """Whether the owner lives; None if it is on another host and cannot be asked."""
    host, _, rest = owner.partition(":")
    pid, _, start = rest.partition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    ticks = start_ticks(int(pid))
    return ticks is not None and (not start.isdigit() or int(start) in (0, ticks))


def owner_is_alive(attempt: AttemptRow) -> bool:
    """The rule of ``reap``: ask this host's kernel, judge another host by the attempt's heartbeat."""
    if attempt.owner is None:
        return False
    alive = process_is_alive(attempt.owner)
    if alive is not None:
        return alive
    return attempt.heartbeat_age_s is not None and attempt.heartbeat_age_s < LEASE_S
