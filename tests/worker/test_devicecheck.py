"""Who counts as a stranger on a device? NVML's answer is given: there is no second user to provoke."""

from __future__ import annotations

import pytest

from worker import devicecheck
from worker.devicecheck import Watch, foreign_users


def test_nobody_is_looked_for_on_a_cpu() -> None:
    assert foreign_users(None, own_pids=(), own_count=1) is None


@pytest.mark.parametrize(
    ("there", "own", "own_count", "note"),
    [
        ([10], [10], 1, None),
        ([10, 77], [10], 1, "1 foreign process(es) on GPU-x: 77"),
        # Two ranks on devices of their own: the other rank's place is not free for a stranger.
        ([10, 77], [10, 11], 2, "1 foreign process(es) on GPU-x: 77"),
        ([10, 11], [10, 11], 2, None),
        # A container: none of the numbers is known here, as many as ours may be there.
        ([5001], [10], 1, None),
        ([5001, 5002], [10], 1, "1 foreign process(es) on GPU-x: 5001, 5002"),
        # Before the job's own first use whoever is there is a stranger.
        ([77], [], 0, "1 foreign process(es) on GPU-x: 77"),
        ([], [], 0, None),
    ],
)
def test_strangers_are_told_from_the_jobs_own_processes(
    there: list[int], own: list[int], own_count: int, note: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devicecheck, "compute_pids", lambda uuid: there)
    assert foreign_users("GPU-x", own_pids=own, own_count=own_count) == note


def test_stranger_who_comes_and_goes_during_the_loop_is_reported_at_once_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there: list[int] = []
    monkeypatch.setattr(devicecheck, "compute_pids", lambda uuid: there)
    reported: list[str] = []
    watch = Watch("GPU-x", reported.append)
    watch.look_before()
    watch.own_pids, watch.own_count = [10], 1
    for iteration, pids in enumerate(([10], [10, 77], [10], [10, 78])):
        there[:] = pids
        watch.look(iteration)
    assert reported == ["after iteration 1: 1 foreign process(es) on GPU-x: 77"]


def test_stranger_before_the_job_is_reported_beside_one_during_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devicecheck, "_LEAVE_S", 0.0)
    monkeypatch.setattr(devicecheck, "compute_pids", lambda uuid: [77])
    reported: list[str] = []
    watch = Watch("GPU-x", reported.append)
    watch.look_before()
    watch.own_pids, watch.own_count = [10], 0
    watch.look(0)
    first = "before: 1 foreign process(es) on GPU-x: 77"
    assert reported == [first, f"{first}; after iteration 0: 1 foreign process(es) on GPU-x: 77"]
