"""Who else uses the device? Asked before a rank touches it and after each iteration, outside timed calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from worker.environment import nvml_handle

_LEAVE_S = 2.0


def foreign_before(uuid: str | None) -> str | None:
    """``foreign_users`` before the job's own first use; a job that is just leaving is waited for."""
    deadline = time.monotonic() + _LEAVE_S
    while True:
        note = foreign_users(uuid, own_pids=(), own_count=0)
        if note is None or time.monotonic() > deadline:
            return note
        time.sleep(0.1)


@dataclass(slots=True)
class Watch:
    """Reports strangers on the device as soon as one is seen: before the loop, then within it once.

    Attributes:
        uuid: the device; None on a CPU.
        report: takes everything noted so far, one line.
        own_pids, own_count: see ``foreign_users``; known once all ranks are there.
    """

    uuid: str | None
    report: Callable[[str], None]
    own_pids: Collection[int] = ()
    own_count: int = 0
    _notes: list[str] = field(default_factory=list)
    _seen_in_loop: bool = False

    def look_before(self) -> None:
        """Before the job's own first use of the device."""
        self._note("before", foreign_before(self.uuid))

    def look(self, iteration: int) -> None:
        """After an iteration: who is there now may have been there in its timed sections."""
        if not self._seen_in_loop:
            note = foreign_users(self.uuid, self.own_pids, self.own_count)
            self._seen_in_loop = note is not None
            self._note(f"after iteration {iteration}", note)

    def _note(self, when: str, note: str | None) -> None:
        if note is not None:
            self._notes.append(f"{when}: {note}")
            self.report("; ".join(self._notes))


def foreign_users(uuid: str | None, own_pids: Collection[int], own_count: int) -> str | None:
    """Processes on the device that are not this job's, in words; None: nobody, or it cannot be told.

    Args:
        uuid: the device; None on a CPU.
        own_pids: the job's processes on this host.
        own_count: how many of them may be on the device. In a container NVML names processes by the
            host's numbers, which say nothing here; then, with none of ``own_pids`` among them, the count
            alone decides.
    """
    if uuid is None:
        return None
    pids = compute_pids(uuid)
    strangers = [pid for pid in pids if pid not in own_pids and not _is_child(pid)]
    # One of ours is named: then the numbers are this host's, and who is not ours is a stranger. The count
    # would let as many pass as the job has ranks on other devices.
    count = len(strangers) if any(pid in own_pids for pid in pids) else len(pids) - own_count
    if count <= 0 or not strangers:
        return None
    return f"{count} foreign process(es) on {uuid}: {', '.join(map(str, strangers))}"


def compute_pids(uuid: str) -> list[int]:
    """Processes with a context on the device, as NVML numbers them; empty if it does not tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # pynvml raises its own kinds, and may be missing.
        return []
    try:
        handle = nvml_handle(pynvml, uuid)
        return sorted({int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)})
    except Exception:  # Not supported on this device.
        return []
    finally:
        pynvml.nvmlShutdown()


def _is_child(pid: int) -> bool:
    """Whether the process is a child of this one (the holder)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[1]) == os.getpid()
