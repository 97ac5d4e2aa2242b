"""Processes as Linux shows them: who belongs to an attempt, and how to end all of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.store.owner import process_is_alive

SUPERVISOR_VARIABLE = "ORCH_SUPERVISOR"
"""In the environment of whatever a supervisor starts: who that is, as in ``attempt.owner``."""

_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children from now on."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of ``/proc/PID/stat``. ``start`` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    has_terminal: bool
    start: int


def stat_of(pid: int) -> ProcessStat | None:
    """The process's state; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read()
    except OSError:
        return None
    # The name may hold spaces and brackets: fields begin after the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(
        pid,
        fields[0].decode(),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        fields[4] != b"0",
        int(fields[19]),
    )


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is more than a zombie."""
    stat = stat_of(pid)
    return stat is not None and stat.state not in ("Z", "X")


def ancestors_of_self() -> set[int]:
    """This process and all above it."""
    found = set()
    pid = os.getpid()
    while pid > 0 and (stat := stat_of(pid)) is not None:
        found.add(pid)
        pid = stat.parent
    return found


def is_visible_alike(pid: int) -> bool:
    """Whether the process sees the same pids as this one: not one of another container."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


def all_pids() -> Iterator[int]:
    """Every process of this PID namespace."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def working_directory(pid: int) -> str | None:
    """The process's working directory; None if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
    except OSError:
        return None


def environment_value(pid: int, name: str) -> str | None:
    """A variable of the environment the process was *started* with by exec; None if it has none.

    A forked child shows what its parent was started with.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            entries = stream.read().split(b"\0")
    except OSError:
        return None
    prefix = name.encode() + b"="
    for entry in entries:
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return None


def children_of_self() -> list[int]:
    """The processes whose parent is this process, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as stream:
                found += map(int, stream.read().split())
    except OSError:
        own = os.getpid()
        return [pid for pid in all_pids() if (stat := stat_of(pid)) is not None and stat.parent == own]
    return found


def descendants(roots: Iterable[int]) -> set[int]:
    """The roots and everything below them that is alive now."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        stat = stat_of(pid)
        if stat is not None and stat.state != "Z":
            children.setdefault(stat.parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found


def is_inside(path: str | None, folder: str) -> bool:
    """Whether a path is the folder or below it."""
    return path is not None and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def belongs_to(pid: int, *, sessions: Iterable[int], run_dir: str, attempt_uid: str) -> bool:
    """Whether a process is part of an attempt, by session, working directory or environment."""
    stat = stat_of(pid)
    if stat is None or stat.state == "Z":
        return False
    return (
        stat.session in sessions
        or is_inside(working_directory(pid), run_dir)
        or environment_value(pid, "ORCH_ATTEMPT") == attempt_uid
    )


def signal_group(leader: int, number: int) -> bool:
    """Signal the process group of a session leader; False if no member is left."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_process(pid: int, number: int) -> None:
    """Signal one process; harmless if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def owner_is_alive(owner: str | None) -> bool:
    """Whether the process of ``attempt.owner`` lives; one on another host is taken to be alive."""
    return bool(owner) and process_is_alive(str(owner)) is not False


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 99`` for an unknown one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
