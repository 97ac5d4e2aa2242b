"""What doctor makes of the rates of a link probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.doctor.devices import Driver, Link
from orchestrator.doctor.link import _slow_devices, _summary, probe_link
from orchestrator.launch.devices import Device
from orchestrator.launch.hoststate import TimedSection

RATES = {
    (True, "down"): {"GPU-1": 55.2, "GPU-2": 55.0},
    (True, "up"): {"GPU-1": 55.3, "GPU-2": 20.0},
    (False, "down"): {"GPU-1": 13.4, "GPU-2": 13.9},
    (False, "up"): {"GPU-1": 7.7, "GPU-2": 7.9},
}


def test_summary_gives_the_slowest_device_of_each_way() -> None:
    assert _summary(RATES).message == (
        "link, pinned: 55.0 GB/s down, 20.0 up · pageable: 13.4 GB/s down, 7.7 up"
    )


def test_device_that_lags_behind_the_best_is_named() -> None:
    (finding,) = _slow_devices(RATES)
    assert finding.message == "GPU-2 copies up at 20.0 GB/s, the best device at 55.3"


def test_host_without_a_device_has_nothing_to_probe() -> None:
    (finding,) = probe_link("no driver")
    assert finding.message == "no device whose link could be probed"


def test_probe_does_not_disturb_a_job_that_is_being_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    device = Device(0, "GPU-1", "H200", 1, "0000:01:00.0", None)
    driver = Driver("580", (13, 0), (device,), {"GPU-1": Link(5, 16, 16)}, {})
    section = TimedSection()
    assert section.try_acquire()
    try:
        (finding,) = probe_link(driver)
    finally:
        section.release()
    assert "not probed" in finding.message
