"""Stands in for ``pynvml`` on a host without a GPU: two devices that nobody uses.

Which rank gets which device is decided by the scheduler, orch and this list; no device is touched.
"""

# ruff: noqa: N802 - the names are the library's

from __future__ import annotations

from types import SimpleNamespace

DEVICES = 2


class NVMLError(Exception):
    """As in the real library."""


def nvmlInit() -> None:
    """There is no driver to open."""


def nvmlShutdown() -> None:
    """Nor to close."""


def nvmlDeviceGetCount() -> int:
    return DEVICES


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetPciInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(busId=f"00000000:0{handle}:00.0")


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{handle}"


def nvmlDeviceGetName(handle: int) -> str:
    return f"pretend {handle}"


def nvmlDeviceGetMemoryInfo(_handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=1 << 40, free=1 << 40, used=0)


def nvmlDeviceGetComputeRunningProcesses(_handle: int) -> list[object]:
    return []
