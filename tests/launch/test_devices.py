"""Which devices a job may use, whatever the shell says."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import EngineError
from orchestrator.launch.devices import Device, accelerator_of, inventory, numa_node_of, select_visible

DEVICES = tuple(
    Device(index, f"GPU-{name}", "NVIDIA H200", 1 << 30, f"00000000:0{index}:00.0", None)
    for index, name in enumerate(("aa11", "aa22", "bb33", "cc44"))
)


@pytest.mark.parametrize(
    ("variable", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2,3", [2, 3]),
        ("3,2", [3, 2]),
        ("GPU-bb33", [2]),
        ("GPU-b,GPU-cc44", [2, 3]),
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),
        ("0,9,1", [0]),
        ("GPU-aa", []),
    ],
)
def test_b7_select_visible_reads_the_variable_as_cuda_does(variable: str | None, indices: list[int]) -> None:
    assert [device.index for device in select_visible(DEVICES, variable)] == indices


@pytest.mark.parametrize("variable", ["1,1", "GPU-aa11,0"])
def test_b7_device_named_twice_is_an_error(variable: str) -> None:
    with pytest.raises(EngineError, match="named twice"):
        select_visible(DEVICES, variable)


def test_b7_mig_is_refused() -> None:
    with pytest.raises(EngineError, match="MIG"):
        select_visible(DEVICES, "MIG-1234")


def test_accelerator_is_cpu_if_asked_for_or_nothing_is_visible() -> None:
    assert accelerator_of(DEVICES, {}) == "cuda"
    assert accelerator_of(DEVICES, {"DS_ACCELERATOR": "cpu"}) == "cpu"
    assert accelerator_of((), {}) == "cpu"


def test_inventory_of_this_host_has_processors_and_memory() -> None:
    found = inventory({"DS_ACCELERATOR": "cpu"})
    assert found.accelerator == "cpu"
    assert found.cpu_count >= 1
    assert found.ram_bytes > 1 << 28


def test_numa_node_is_read_beside_the_pci_device(tmp_path: Path) -> None:
    folder = tmp_path / "0000:3b:00.0"
    folder.mkdir()
    (folder / "numa_node").write_text("1\n")
    assert numa_node_of("00000000:3B:00.0", tmp_path) == 1
    (folder / "numa_node").write_text("-1\n")
    assert numa_node_of("00000000:3B:00.0", tmp_path) is None
    assert numa_node_of("00000000:4C:00.0", tmp_path) is None
