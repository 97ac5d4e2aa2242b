"""Slots of one host, shared between pools as two orchs would share them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.engines.slots import Slot, SlotPool
from orchestrator.errors import EngineError


def pool(folder: Path, count: int = 2) -> SlotPool:
    return SlotPool([Slot(f"cpu-{number}") for number in range(count)], folder)


def test_take_all_slots_used_gives_none(tmp_path: Path) -> None:
    mine = pool(tmp_path)
    assert mine.take(1)
    assert mine.take(1)
    assert mine.take(1) is None
    assert not mine.waits_for_others


def test_take_slot_of_another_orch_is_not_given_twice(tmp_path: Path) -> None:
    mine, other = pool(tmp_path), pool(tmp_path)
    first, second = mine.take(1), other.take(1)
    assert first
    assert second
    assert first != second
    assert other.take(1) is None
    assert other.waits_for_others
    mine.give(first)
    assert other.take(1) == first


def test_take_several_is_all_or_nothing(tmp_path: Path) -> None:
    mine, other = pool(tmp_path), pool(tmp_path)
    one = other.take(1)
    assert one
    assert mine.take(2) is None
    other.give(one)
    assert mine.take(2) is not None


def test_take_wide_job_waits_and_is_not_starved_by_narrow_ones(tmp_path: Path) -> None:
    wide, narrow = pool(tmp_path), pool(tmp_path)
    running = narrow.take(1)
    assert running
    assert wide.take(2) is None
    assert narrow.take(1) is None  # the free slot is kept for the wide job
    narrow.give(running)
    assert narrow.take(1) is None
    assert wide.take(2) is not None


def test_take_slot_goes_to_who_has_waited_not_to_who_gives_it_back(tmp_path: Path) -> None:
    busy, hungry = pool(tmp_path), pool(tmp_path)
    first, second = busy.take(1), busy.take(1)
    assert first
    assert second
    assert hungry.take(1) is None
    busy.give(first)
    assert busy.take(1) is None
    assert busy.waits_for_others
    busy.give(second)
    assert hungry.take(1) == first
    assert busy.take(1) == second, "only one slot was held back"


def test_take_wide_job_is_not_starved_by_narrow_ones_that_wait_too(tmp_path: Path) -> None:
    wide, busy, hungry = pool(tmp_path), pool(tmp_path), pool(tmp_path)
    running = [busy.take(1), busy.take(1)]
    assert hungry.take(1) is None
    assert wide.take(2) is None
    busy.give(running[0] or ())
    (got,) = hungry.take(1) or ()
    assert wide.take(2) is None
    busy.give(running[1] or ())
    assert hungry.take(1) is None
    assert busy.take(1) is None, "the wide job is next for every slot"
    hungry.give([got])
    assert wide.take(2) is not None


def test_take_two_that_wait_for_each_others_place_do_not_block_each_other(tmp_path: Path) -> None:
    one, two, busy = pool(tmp_path), pool(tmp_path), pool(tmp_path)
    running = [busy.take(1), busy.take(1)]
    assert one.take(1) is None
    assert two.take(1) is None
    assert one.take(2) is None
    assert two.take(2) is None
    for slots in running:
        busy.give(slots or ())
    got = one.take(2) or two.take(2)
    assert got is not None
    one.give(got)
    two.give(got)
    assert two.take(2) or one.take(2)


def test_take_two_wide_jobs_do_not_block_each_other(tmp_path: Path) -> None:
    first, second, narrow = pool(tmp_path), pool(tmp_path), pool(tmp_path)
    running = narrow.take(1)
    assert running
    assert first.take(2) is None
    assert second.take(2) is None
    narrow.give(running)
    got = first.take(2)
    assert got
    assert second.take(2) is None
    first.give(got)
    assert second.take(2) is not None


def test_stop_waiting_lets_others_take_slots(tmp_path: Path) -> None:
    wide, narrow = pool(tmp_path), pool(tmp_path)
    assert narrow.take(1)
    assert wide.take(2) is None
    wide.stop_waiting()
    assert narrow.take(1)


def test_lease_lives_in_who_inherited_it_until_that_one_is_gone(tmp_path: Path) -> None:
    mine, other = pool(tmp_path, 1), pool(tmp_path, 1)
    supervisor = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=mine.lease_fds(),
    )
    assert mine.take(1)
    mine.close()  # as if orch had died
    assert other.take(1) is None
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    supervisor.wait()
    assert other.take(1)


def test_give_frees_a_lease_that_a_supervisor_inherited(tmp_path: Path) -> None:
    mine, other = pool(tmp_path, 1), pool(tmp_path, 1)
    inherited = [os.dup(fd) for fd in mine.lease_fds()]
    got = mine.take(1)
    assert got
    assert other.take(1) is None
    mine.give(got)
    assert other.take(1)
    for fd in inherited:
        os.close(fd)


def test_more_slots_than_files_may_be_open_is_an_error_that_says_so(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, before[1]))
    try:
        with pytest.raises(EngineError, match="too many open files for 500 slots"):
            pool(tmp_path, 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
