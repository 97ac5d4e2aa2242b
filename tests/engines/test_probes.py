"""When the link is probed, and that a probe has the host to itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.launch.hoststate import TimedSection
from orchestrator.launch.probes import ProbeClock, probe_groups, probe_rows
from orchestrator.store.rows import ProbeRow
from tests.engines.running import wait_until


class Kept:
    def __init__(self) -> None:
        self.calls: list[Sequence[ProbeRow]] = []

    def put_probes(self, probes: Sequence[ProbeRow]) -> None:
        self.calls.append(probes)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")  # the probe then prints an empty list
    return tmp_path


def clock(store: Kept, every_s: float = 1000.0) -> ProbeClock:
    return ProbeClock(store, 1, [("GPU-a",), ("GPU-b",)], every_s, lambda _line: None)


@pytest.mark.usefixtures("state")
def test_probe_at_the_start_waits_for_the_host_and_holds_its_timed_section() -> None:
    store, other = Kept(), TimedSection()
    probes = clock(store)
    assert probes.turn(idle=False, over=False, last=False)  # held back until nothing runs
    assert other.try_acquire()
    assert probes.turn(idle=True, over=False, last=False)
    assert not store.calls
    other.release()
    assert probes.turn(idle=True, over=False, last=False)
    assert not other.try_acquire()
    wait_until(lambda: not probes.turn(idle=True, over=False, last=False), "both groups are probed")
    assert len(store.calls) == 2
    assert other.try_acquire()


@pytest.mark.usefixtures("state")
def test_probe_at_the_end_only_if_jobs_have_run_since() -> None:
    store = Kept()
    probes = clock(store)
    wait_until(lambda: not probes.turn(idle=True, over=False, last=False), "the first probe")
    assert not probes.turn(idle=True, over=False, last=True)
    assert not probes.turn(idle=False, over=False, last=False)  # a job runs
    assert probes.turn(idle=True, over=False, last=True)
    probes.close()


@pytest.mark.usefixtures("state")
def test_probe_is_ended_when_the_sweep_stops() -> None:
    probes = clock(Kept())
    assert probes.turn(idle=True, over=False, last=False)
    assert not probes.turn(idle=True, over=True, last=False)
    assert TimedSection().try_acquire()


def test_probe_groups_are_as_wide_as_the_jobs() -> None:
    assert probe_groups(["a", "b", "c"], [1, 2, 2, 4]) == [("a",), ("b",), ("c",), ("a", "b")]
    assert probe_groups([], [1]) == []


def test_probe_rows_are_read_from_json() -> None:
    text = (
        b'[{"host": "h", "device_uuid": "GPU-a", "pinned": true, "direction": "down", "bytes": 8,'
        b' "copies": 7, "seconds": 0.5, "gbps": 1.0, "devices_at_once": 1, "device_name": "x",'
        b' "probed_at": "2026-01-01T00:00:00+00:00"}]'
    )
    (row,) = probe_rows(text)
    assert (row.device_uuid, row.seconds) == ("GPU-a", 0.5)
