"""NVML counts devices by PCI bus, CUDA may count them by speed: memory is read by UUID, never by index."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from orchestrator.launch.devices import Device, select_visible
from worker.sampler import DeviceMemory

USED = {"GPU-slow": 1_000, "GPU-fast": 2_000}
"""In NVML's order; CUDA would call the fast one device 0."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """An NVML of two devices, which this host need not have."""

    def memory(handle: str) -> Any:
        return SimpleNamespace(used=USED[handle], free=10_000 - USED[handle])

    def by_index(_index: int) -> str:
        pytest.fail("a device was asked for by its index")

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", by_index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)


@pytest.mark.usefixtures("nvml")
def test_b8_memory_is_sampled_on_the_jobs_own_device_found_by_uuid() -> None:
    memory = DeviceMemory(["GPU-fast"])
    assert memory.used_and_free("GPU-fast") == (2_000, 8_000)
    assert memory.used_and_free("GPU-slow") == (None, None)
    assert memory.used_and_free(None) == (None, None)


def test_b8_visible_devices_keep_cudas_order_and_their_own_uuids() -> None:
    nvml_order = [
        Device(index, uuid, "H200", 10_000, f"0000:0{index}:00.0", None) for index, uuid in enumerate(USED)
    ]
    visible = select_visible(nvml_order, "GPU-fast,GPU-slow")
    assert [(device.index, device.uuid) for device in visible] == [(1, "GPU-fast"), (0, "GPU-slow")]
