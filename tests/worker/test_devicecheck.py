"""Who counts as a stranger on a device? NVML's answer is given: there is no second user to provoke."""

from __future__ import annotations

import pytest

from worker import devicecheck
from worker.devicecheck import foreign_users


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
