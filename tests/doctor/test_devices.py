"""What doctor says about devices, versions and memory, from facts given by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.doctor import pinned, software
from orchestrator.doctor.devices import Driver, Link, check_devices
from orchestrator.doctor.finding import Settings, Severity, size
from orchestrator.doctor.software import check_versions
from orchestrator.launch.devices import Device, DeviceUse

SETTINGS = Settings("orch.db", environ={})


def driver(*, width: int = 16, used_bytes: int = 0, pids: tuple[int, ...] = ()) -> Driver:
    device = Device(0, "GPU-1", "NVIDIA H200", 150_754_820_096, "0000:01:00.0", 0)
    return Driver(
        "580.159",
        (13, 0),
        (device,),
        {"GPU-1": Link(5, width, 16)},
        {"GPU-1": DeviceUse(device.total_bytes - used_bytes, used_bytes, pids)},
    )


def test_idle_device_gives_one_line() -> None:
    (finding,) = check_devices(SETTINGS, driver())
    assert finding.severity is Severity.OK
    assert finding.message == "1 × NVIDIA H200 (150.8 GB) · driver 580.159 · PCIe gen 5 ×16 · NUMA 0"


def test_narrow_link_is_a_warning() -> None:
    findings = check_devices(SETTINGS, driver(width=8))
    assert [finding.check for finding in findings] == ["devices", "link"]
    assert "8 of 16 PCIe lanes" in findings[1].message


def test_busy_device_names_the_processes() -> None:
    findings = check_devices(SETTINGS, driver(used_bytes=20_000_000_000, pids=(4711, 4712)))
    assert findings[1].check == "busy"
    assert findings[1].mend == "ps -o pid,user,lstart,cmd -p 4711,4712"


def test_memory_without_a_process_is_reported() -> None:
    findings = check_devices(SETTINGS, driver(used_bytes=20_000_000_000))
    assert "no process to be seen" in findings[1].message


def test_visible_devices_are_mentioned_when_set() -> None:
    findings = check_devices(Settings("orch.db", environ={"CUDA_VISIBLE_DEVICES": ""}), driver())
    assert "empty: no device at all" in findings[1].message


@pytest.mark.parametrize(
    ("versions", "severity", "words"),
    [
        ({"torch": None, "deepspeed": None}, Severity.ERROR, "torch and deepspeed not installed"),
        ({"torch": "2.11.0+cu130", "deepspeed": "0.19.8"}, None, ""),
        ({"torch": "2.11.0+cu130", "deepspeed": "0.15.2"}, Severity.WARN, "ZeRO-1"),
        ({"torch": "2.15.0+cu140", "deepspeed": "0.19.8"}, Severity.ERROR, "the driver ends at 13.0"),
        ({"torch": "2.11.0+cpu", "deepspeed": "0.19.8"}, Severity.ERROR, "built for the CPU only"),
    ],
)
def test_versions_that_do_not_fit_are_named(
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str | None],
    severity: Severity | None,
    words: str,
) -> None:
    monkeypatch.setattr(software, "installed", versions.get)
    monkeypatch.setattr(software, "folder_of", lambda name: Path("/") if versions.get(name) else None)
    bad = [finding for finding in check_versions(driver()) if finding.severity is not Severity.OK]
    assert [finding.severity for finding in bad] == ([severity] if severity else [])
    assert all(words in finding.message for finding in bad)


def test_sizes_are_readable() -> None:
    assert (size(68_719_476_736), size(8_388_608)) == ("68.7 GB", "8.4 MB")


@pytest.mark.parametrize(
    ("ram_bytes", "severity"),
    [(25_000_000_000, Severity.WARN), (128_000_000_000, Severity.WARN), (512_000_000_000, Severity.OK)],
)
def test_pinned_rounding_is_held_against_the_ram(
    monkeypatch: pytest.MonkeyPatch, ram_bytes: int, severity: Severity
) -> None:
    monkeypatch.setattr(pinned, "ram_bytes", lambda: ram_bytes)
    monkeypatch.setattr(pinned, "largest_pinned_bytes", lambda: (68_719_673_344, 34_361_835_520))
    (finding,) = pinned.check_pinned(driver())
    assert finding.severity is severity
    assert "takes 68.7 GB of host RAM for 34.4 GB of state" in finding.message


def test_largest_cell_of_the_shipped_full_sweep_pins_twice_its_states() -> None:
    pinned_bytes, copied_bytes = pinned.largest_pinned_bytes()
    assert 1.5 * copied_bytes < pinned_bytes <= 2.1 * copied_bytes
