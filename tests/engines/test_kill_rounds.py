"""SIGKILL of every part at random moments, and what must be true afterwards; see ``kill_rounds``."""

from __future__ import annotations

import pytest

from tests.engines.kill_rounds import VICTIMS, run_rounds
from tests.engines.running import Workplace


@pytest.mark.parametrize("victim", VICTIMS)
def test_c9_killed_part_loses_nothing_and_leaves_nothing(place: Workplace, victim: str) -> None:
    outcome = run_rounds(place, "acting", 3, [victim])
    assert outcome.killed[victim], "none was killed"
    assert outcome.is_clean, outcome.lines()


@pytest.mark.deepspeed
@pytest.mark.timeout(1200)
def test_c9_killed_parts_of_real_jobs_lose_nothing_and_leave_nothing(place: Workplace) -> None:
    outcome = run_rounds(place, "deepspeed", 5, seed=3)
    assert outcome.killed.total() >= 3
    assert outcome.is_clean, outcome.lines()
