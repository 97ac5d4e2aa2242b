"""Host memory: what may be pinned, what dead jobs left in shared memory, what the container allows."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from orchestrator.doctor.devices import Driver
from orchestrator.doctor.finding import Finding, Settings, ok, size, warn
from orchestrator.launch.devices import ram_bytes
from orchestrator.launch.holders import holders_of
from orchestrator.launch.sharedmemory import LIBRARY_NAMES

_SMALL_SHM_BYTES = 1_000_000_000
"""NCCL takes some tens of megabytes a rank; a container's default of 64 MB is too little."""


def check_memory(settings: Settings, driver: Driver | str) -> list[Finding]:
    """RAM, the container's limit, locked memory and the size of /dev/shm."""
    total, limit = psutil.virtual_memory().total, ram_bytes()
    findings = [ok("memory", f"{size(total)} of RAM", "MemTotal")]
    if limit < total:
        message = f"the container may use {size(limit)} of {size(total)}, pinned memory included"
        findings.append(
            warn("memory", message, "memory limit of the control group", "raise the container's limit")
        )
    has_gpu = isinstance(driver, Driver) and bool(driver.devices)
    return [*findings, *_locked(has_gpu), *_shared_memory_size(settings, driver)]


def _locked(has_gpu: bool) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield ok("locked-memory", "locked memory is unlimited", "ulimit -l")
        return
    message = f"ulimit -l is {size(soft)}: InfiniBand and GPUDirect cannot register more"
    can_raise = hard == resource.RLIM_INFINITY
    mend = "ulimit -l unlimited" if can_raise else "docker run --ulimit memlock=-1, or memlock in limits.conf"
    # CUDA's own pinning does not count against the limit, so one host without such a fabric is fine.
    yield (
        warn("locked-memory", message, "ulimit -l", mend)
        if has_gpu
        else ok("locked-memory", f"ulimit -l is {size(soft)}; nothing is pinned on a CPU", "ulimit -l")
    )


def _shared_memory_size(settings: Settings, driver: Driver | str) -> Iterator[Finding]:
    if not settings.shared_memory.is_dir():
        yield warn("shared-memory", f"no {settings.shared_memory}: jobs of several ranks fail")
        return
    usage = shutil.disk_usage(settings.shared_memory)
    many = isinstance(driver, Driver) and len(driver.devices) > 1
    if usage.total < _SMALL_SHM_BYTES and many:
        message = f"{settings.shared_memory} has only {size(usage.total)}: several ranks may run out"
        yield warn("shared-memory", message, "statvfs", "docker run --shm-size=8g")
    elif usage.free < usage.total // 20:
        message = f"{settings.shared_memory} is nearly full ({size(usage.free)} left)"
        yield warn("shared-memory", message, "statvfs", f"ls -lS {settings.shared_memory}")


def find_leftovers(settings: Settings) -> list[Path]:
    """Shared-memory files of DeepSpeed, NCCL or torch that no process has open or mapped."""
    own = os.geteuid()
    paths = []
    for pattern in LIBRARY_NAMES:
        for path in sorted(settings.shared_memory.glob(pattern)):
            # Another user's processes cannot be looked into, so their files are not judged.
            if path.is_file() and own in (0, path.stat().st_uid):
                paths.append(path)
    holders = holders_of(paths, settings.proc)
    return [path for path in paths if path not in holders]


def check_leftovers(settings: Settings) -> list[Finding]:
    """Nothing of a dead job in shared memory."""
    leftovers = find_leftovers(settings)
    if not leftovers:
        return []
    held_bytes = sum(path.stat().st_size for path in leftovers)
    files = "1 shared-memory file" if len(leftovers) == 1 else f"{len(leftovers)} shared-memory files"
    message = f"{files} of dead jobs: {size(held_bytes)} of RAM"
    evidence = ", ".join(str(path) for path in leftovers[:3]) + (", …" if len(leftovers) > 3 else "")
    return [warn("leftovers", message, evidence, "orch doctor --fix leftovers")]
