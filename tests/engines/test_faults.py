"""Ranks, spools and supervisors that misbehave: what the database says, and that the sweep goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from orchestrator.launch.sharedmemory import SHARED_MEMORY
from tests.engines import acting_worker as act
from tests.engines.kill_rounds import held_locks
from tests.engines.running import Workplace, wait_until


def test_rank_that_is_stopped_is_a_hang_where_a_limit_is_set(place: Workplace) -> None:
    spec = place.spec(
        micro_batch=act.STOPS, limits="retries: 1, hang_s: 0.5, start_timeout_s: 1, timeout: 60"
    )
    done = place.sweep(spec)
    assert done.returncode == 1, done.stderr
    rows = place.query("select status, failure_kind, message from attempt")
    # It never came to its first timed operation, and that has a limit of its own.
    assert [row["status"] for row in rows] == ["timeout"]
    assert rows[0]["message"] == "nothing was measured within 1 s"
    place.wait_for_no_survivors()


def test_rank_that_is_stopped_between_two_records_is_a_hang_and_is_tried_again(place: Workplace) -> None:
    done = place.sweep(place.spec(micro_batch=act.STOPS_LATE, limits="retries: 1, hang_s: 0.5"))
    assert done.returncode == 1, done.stderr
    rows = place.query("select status, failure_kind, message from attempt")
    assert [tuple(row.values()) for row in rows] == [("failed", "hang", "no record for 0.5 s")] * 2
    place.wait_for_no_survivors()


def test_rank_that_is_stopped_without_a_hang_limit_ends_with_the_timeout(place: Workplace) -> None:
    done = place.sweep(place.spec(micro_batch=act.STOPS_LATE, limits="timeout: 2"))
    assert done.returncode == 1, done.stderr
    rows = place.query("select status, message from attempt")
    assert [tuple(row.values()) for row in rows] == [("timeout", "not done within 2 s")]
    place.wait_for_no_survivors()


def test_spool_that_vanishes_is_no_result_and_the_job_is_tried_again(place: Workplace) -> None:
    done = place.sweep(place.spec(micro_batch=[act.OK, act.LOSES_SPOOL], limits="retries: 1"))
    assert done.returncode == 1, done.stderr
    rows = place.query(
        "select micro_batch as act, a.status, failure_kind from attempt a join job using (job_id)"
    )
    lost = (act.LOSES_SPOOL, "failed", "no_result")
    assert sorted(tuple(row.values()) for row in rows) == [(act.OK, "ok", None), lost, lost]
    place.wait_for_no_survivors()


def test_garbage_in_a_spool_costs_nothing_but_a_note(place: Workplace) -> None:
    done = place.sweep(place.spec(micro_batch=act.SPOILS_SPOOL, iterations=3))
    assert done.returncode == 0, done.stderr
    assert place.query("select count(*) as n from iteration") == [{"n": 3}]
    (note,) = place.query("select message from event where kind = 'note'")
    assert note["message"] == "spool rank0.jsonl: line 6 is of no use: not JSON"


def test_supervisor_that_is_stopped_for_a_while_loses_nothing(place: Workplace) -> None:
    with place.sweeping(place.spec(2, micro_batch=act.WAITS_FOR_GO, iterations=3)) as process:
        spools = wait_until(lambda: _spools(place, 2), "two ranks are at it")
        supervisor = _supervisor(place)
        os.kill(supervisor, signal.SIGSTOP)
        (place.folder / "go").touch()
        wait_until(
            lambda: all(b'"final"' in spool.read_bytes() for spool in spools), "the ranks have delivered"
        )
        assert place.statuses() == {"running": 2}
        os.kill(supervisor, signal.SIGCONT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (
        place.query("select status, failure_kind from attempt")
        == [{"status": "ok", "failure_kind": None}] * 2
    )
    place.wait_for_no_survivors()


def test_stopped_supervisor_of_a_killed_orch_gives_its_slots_to_the_next(place: Workplace) -> None:
    """Nobody would ever wake it: the next orch waits as long as a supervisor may take to leave, no longer."""
    with place.sweeping(place.spec(2, micro_batch=act.WAITS_FOR_GO)) as process:
        wait_until(lambda: _spools(place, 2), "two ranks are at it")
        supervisor = _supervisor(place)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            process.kill()
            process.wait()
            (place.folder / "go").touch()
            done = place.sweep(place.spec(2, micro_batch=act.WAITS_FOR_GO))
            assert done.returncode == 0, done.stderr
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGKILL)
    assert place.statuses() == {"ok": 2}
    assert held_locks(Path(place.environment["ORCH_STATE_DIR"])) == []
    place.wait_for_no_survivors()


def test_orphans_of_one_database_are_ended_by_the_next_orch_of_another(
    place: Workplace, tmp_path: Path
) -> None:
    with place.sweeping(place.spec(micro_batch=act.FAMILY, dwell_s=1000)) as process:
        wait_until(lambda: _shared_memory(place), "a rank has shared memory")
        supervisor = _supervisor(place)
        process.kill()
        os.kill(supervisor, signal.SIGKILL)
        process.wait()
    assert wait_until(place.survivors, "what the rank had started")
    (tmp_path / "other").mkdir()
    other = Workplace(tmp_path / "other")
    other.environment["ORCH_STATE_DIR"] = place.environment["ORCH_STATE_DIR"]
    assert other.sweep(other.spec()).returncode == 0
    place.wait_for_no_survivors()
    # Which shared memory was theirs, the run directories beside their database tell.
    assert (left := _shared_memory(place))
    assert place.sweep(place.spec(name="another")).returncode == 0
    assert [path for path in left if path.exists()] == []
    # The interrupted sweep, whose file no longer asks for what was lost.
    again = place.sweep(place.spec())
    assert again.returncode == 0, again.stderr
    assert place.statuses() == {"ok": 2, "lost": 1}


@pytest.mark.parametrize("leaves", [act.FAMILY, act.GRANDCHILD])
def test_what_a_rank_has_started_does_not_outlive_its_job(place: Workplace, leaves: int) -> None:
    with place.sweeping(place.spec(2, micro_batch=leaves), "--quiet") as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert place.statuses() == {"ok": 2}
    place.wait_for_no_survivors()


def _spools(place: Workplace, count: int) -> list[Path]:
    """The spools in which something stands, once there are so many."""
    found = [path for path in Path(f"{place.db}.runs").glob("*/*/spool/rank*.jsonl") if path.stat().st_size]
    return found if len(found) == count else []


def _shared_memory(place: Workplace) -> list[Path]:
    """What the only rank of a family has left in shared memory, once all of it is there."""
    for job in Path(f"{place.db}.runs").glob("*/*/job.json"):
        found = list(SHARED_MEMORY.glob(f"*_{json.loads(job.read_text())['port']}_0"))
        if len(found) == 2:
            return found
    return []


def _supervisor(place: Workplace) -> int:
    (row,) = place.query("select distinct owner from attempt where status = 'running'")
    return int(row["owner"].split(":")[1])
