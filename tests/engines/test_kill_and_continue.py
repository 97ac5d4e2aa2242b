"""KILL at random moments, many times: nothing acknowledged is lost, every cell is ok exactly once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.engines.running import Workplace, wait_until

JOBS, ITERATIONS = 300, 3
KILLS = 20


@pytest.mark.parametrize("victims", ["orch", "both"])
def test_c9_killed_at_random_moments_every_cell_is_ok_exactly_once(place: Workplace, victims: str) -> None:
    spec = place.spec(JOBS, iterations=ITERATIONS, dwell_s=0.01, limits="retries: 5")
    moments = random.Random(9)
    for number in range(KILLS):
        begun = _attempts(place)
        with place.sweeping(spec) as process:
            if number % 4:  # a quarter dies before or while anything is started
                wait_until(partial(_more_than, place, begun), "a job was begun")
            time.sleep(moments.uniform(0.0, 0.4))
            assert process.poll() is None, "the sweep was over before it could be killed: more jobs"
            supervisors = _supervisors(place)
            process.kill()
            if victims == "both":
                _kill(supervisors)
    _finish_and_check(place, spec)


def test_c9_killed_supervisors_are_replaced_and_every_cell_is_ok_exactly_once(place: Workplace) -> None:
    spec = place.spec(JOBS, iterations=ITERATIONS, dwell_s=0.01, limits="retries: 5")
    moments = random.Random(10)
    with place.sweeping(spec, "--quiet") as process:
        for _ in range(5):
            alive = wait_until(lambda: _supervisors(place), "a supervisor runs a job")
            time.sleep(moments.uniform(0.0, 0.4))
            _kill(alive)
            wait_until(partial(_others, place, alive), "another one has replaced it")
        process.communicate(timeout=120)
    assert process.returncode == 0
    _finish_and_check(place, spec)


def _attempts(place: Workplace) -> int:
    rows = place.query("select count(*) as n from attempt")
    return int(rows[0]["n"]) if rows else 0


def _more_than(place: Workplace, before: int) -> bool:
    return _attempts(place) > before


def _others(place: Workplace, dead: set[int]) -> set[int]:
    return _supervisors(place) - dead


def _supervisors(place: Workplace) -> set[int]:
    rows = place.query("select distinct owner from attempt where status = 'running'")
    pids = {int(row["owner"].split(":")[1]) for row in rows}
    return {pid for pid in pids if _is_supervisor(pid)}


def _is_supervisor(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"orchestrator.launch.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _finish_and_check(place: Workplace, spec: Path) -> None:
    acknowledged = _acknowledged(place)
    assert acknowledged
    done = place.sweep(spec)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": JOBS}
    ok = place.query("select job_id, count(*) as n from attempt where status = 'ok' group by job_id")
    assert len(ok) == JOBS
    assert {row["n"] for row in ok} == {1}
    stored = place.query(
        "select a.uid, i.rank, i.iteration from iteration i join attempt a using (attempt_id)"
    )
    assert acknowledged - {(row["uid"], row["rank"], row["iteration"]) for row in stored} == set()
    place.wait_for_no_survivors()


def _acknowledged(place: Workplace) -> set[tuple[str, int, int]]:
    """Every complete iteration line of every spool."""
    found = set()
    for spool in Path(f"{place.db}.runs").glob("*/*/spool/rank*.jsonl"):
        for line in spool.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            if record["kind"] == "iteration":
                found.add((spool.parent.parent.name, record["rank"], record["iteration"]))
    return found
