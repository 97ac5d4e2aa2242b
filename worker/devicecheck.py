"""Who else uses the device? Asked before a rank touches it and after its last timed section."""

from __future__ import annotations

import os
from pathlib import Path

from worker.environment import nvml_handle


def foreign_users(uuid: str | None, own: int) -> str | None:
    """Processes on the device that are not this job's, in words; None: nobody, or it cannot be told.

    In a container NVML names processes by the host's numbers, which say nothing here; then the count alone
    decides: more than the ``own`` processes that this rank has there.
    """
    if uuid is None:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    try:
        handle = nvml_handle(pynvml, uuid)
        pids = sorted({int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)})
    except Exception:
        return None
    finally:
        pynvml.nvmlShutdown()
    strangers = [pid for pid in pids if not _is_ours(pid)]
    if len(pids) <= own or not strangers:
        return None
    return f"{len(pids) - own} foreign process(es) on {uuid}: {', '.join(map(str, strangers))}"


def _is_ours(pid: int) -> bool:
    """Whether the process is this rank or a child of it."""
    if pid == os.getpid():
        return True
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[1]) == os.getpid()
