"""A sweep that is stopped by its failures, by signals or by KILL, and one that is continued."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.cluster.places import ClusterPlace
from tests.engines import acting_worker as act
from tests.engines.running import Workplace, wait_until
from tests.postgres import PostgresServer


def test_b16_every_job_fails_the_sweep_stops_after_n_in_a_row(place: Workplace) -> None:
    done = place.sweep(place.spec(20, micro_batch=act.RAISES, limits="retries: 0, consecutive_failures: 5"))
    assert done.returncode == 1
    assert place.statuses() == {"failed": 5, "pending": 15}
    assert "stopped after 5 failures in a row" in done.stderr
    assert "15 jobs stay pending" in done.stderr


def test_fail_fast_stops_at_the_first_failure(place: Workplace) -> None:
    place.options = ["--engine", "local", "--slots", "1"]
    done = place.sweep(place.spec(20, micro_batch=act.RAISES, limits="retries: 0"), "--fail-fast")
    assert done.returncode == 1
    assert place.statuses() == {"failed": 1, "pending": 19}


@pytest.mark.parametrize(
    ("acts", "status"),
    [([act.RAISES, act.NO_RESULT], 1), ([act.OK, act.RAISES], 1), ([act.OK, act.PRINTS], 0)],
    ids=["all", "some", "none"],
)
def test_b18_exit_status_when_all_some_or_no_jobs_fail(
    place: Workplace, acts: list[int], status: int
) -> None:
    done = place.sweep(place.spec(micro_batch=acts, limits="retries: 0"))
    assert done.returncode == status, done.stderr


def test_retry_failed_runs_failed_jobs_again_and_default_does_not(place: Workplace) -> None:
    spec = place.spec(micro_batch=[act.OK, act.RAISES], limits="retries: 0")
    place.sweep(spec)
    place.sweep(spec)
    assert place.query("select count(*) as n from attempt") == [{"n": 2}]
    assert place.sweep(spec, "--retry-failed").returncode == 1
    assert place.query("select count(*) as n from attempt") == [{"n": 3}]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_b5_second_signal_kills_at_once(place: Workplace, number: signal.Signals, status: int) -> None:
    spec = place.spec(3, micro_batch=act.IGNORES_TERM, dwell_s=1000)
    spec.write_text(spec.read_text().replace("grace_s: 1", "grace_s: 1000"))
    with place.sweeping(spec) as process:
        wait_until(lambda: place.query("select 1 from attempt where started_at is not null"), "a job runs")
        process.send_signal(number)
        assert process.stderr is not None
        for line in process.stderr:
            if "stopping" in line:
                break
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == status
    assert set(place.statuses()) <= {"cancelled", "lost", "pending"}
    assert not place.query("select 1 from attempt where status = 'running'")
    place.wait_for_no_survivors()


@pytest.mark.postgres
@pytest.mark.parametrize("interrupts", [1, 2])
def test_interrupt_while_the_database_is_away_leaves_what_the_next_sweep_takes_in(
    own_server: PostgresServer, tmp_path: Path, interrupts: int
) -> None:
    place = ClusterPlace(tmp_path, db=own_server.new_database())
    spec = place.spec(micro_batch=[act.WAITS_FOR_GO, act.SLOW_ONCE])
    with place.sweeping(spec) as process:
        running = "select 1 from attempt where status = 'running' and started_at is not null"
        wait_until(lambda: len(place.query(running)) == 2, "both jobs run")
        own_server.stop("immediate")
        (place.folder / "go").touch()
        spools = place.folder / "orch-runs"
        wait_until(
            lambda: any('"final"' in file.read_text() for file in spools.glob("*/*/spool/*.jsonl")),
            "one of them delivers",
        )
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "stopping" not in (line := process.stderr.readline()):
            assert line, "orch left before it said that it stops"
        for _ in range(interrupts - 1):
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    (last,) = [line for line in errors.splitlines() if line.startswith("sweep s: ")]
    assert "stopped, but not all of it is recorded (postgresql://orch:***@" in last
    assert "; what was measured lies in the run directories, and the next orch sweep takes it in." in last
    assert f" Continue with: orch sweep {spec}" in last
    assert "Traceback" not in errors
    place.wait_for_no_survivors()
    own_server.start()
    done = place.sweep(spec)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 2}
    assert place.query("select micro_batch, count(*) as n from attempt join job using (job_id)"
                       " group by micro_batch order by micro_batch") == [
        {"micro_batch": act.SLOW_ONCE, "n": 2},
        {"micro_batch": act.WAITS_FOR_GO, "n": 1},
    ]  # fmt: skip
    place.wait_for_no_survivors()


def test_same_sweep_twice_is_refused_while_the_first_lives(place: Workplace) -> None:
    spec = place.spec(1, dwell_s=1000)
    with place.sweeping(spec) as process:
        wait_until(lambda: place.statuses().get("running"), "a job runs")
        again = place.sweep(spec)
        assert again.returncode == 4, again.stderr
        assert "Traceback" not in again.stderr
        process.kill()
        process.communicate()
    spec = place.spec(1, dwell_s=0)
    free = place.sweep(spec)
    assert free.returncode == 0, free.stderr


def test_two_sweeps_at_once_on_one_host_share_the_slots(place: Workplace) -> None:
    place.options = ["--engine", "local", "--slots", "2"]
    one, two = (place.spec(15, name=name, dwell_s=0.02) for name in ("one", "two"))
    with place.sweeping(one) as first, place.sweeping(two) as second:
        for process in (first, second):
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    spans = place.query("select started_at, ended_at from attempt")
    moments = sorted([(s["started_at"], 1) for s in spans] + [(s["ended_at"], -1) for s in spans])
    at_once = highest = 0
    for _, change in moments:
        at_once += change
        highest = max(highest, at_once)
    assert len(spans) == 30
    assert highest <= 2


def test_c8_killed_orch_resumes_and_the_dead_attempt_is_not_running(place: Workplace) -> None:
    with place.sweeping(place.spec(4, dwell_s=1000)) as process:
        wait_until(lambda: place.query("select 1 from attempt where started_at is not null"), "a job runs")
        process.kill()
        process.wait()
    place.wait_for_no_survivors()
    path = place.spec(4, dwell_s=1000)
    path.write_text(path.read_text().replace("1000", "0"))  # another cell: the old one is not run again
    done = place.sweep(path)
    assert done.returncode in (0, 1), done.stderr
    assert place.query("select count(*) as n from attempt where status = 'running'") == [{"n": 0}]
    ended = place.query("select distinct status from attempt where status <> 'ok'")
    assert {row["status"] for row in ended} <= {"lost", "cancelled"}


def test_c8_killed_orch_and_supervisor_pid_reused_attempt_is_lost(place: Workplace) -> None:
    with place.sweeping(place.spec(1, dwell_s=1000)) as process:
        wait_until(lambda: place.query("select 1 from attempt where started_at is not null"), "a job runs")
        (row,) = place.query("select owner from attempt")
        supervisor = int(row["owner"].split(":")[1])
        process.kill()
        signal_supervisor(supervisor)
        process.wait()
    with sqlite3.connect(place.db) as connection:  # as if a new process had got the pid: this one
        host = row["owner"].split(":")[0]
        connection.execute("update attempt set owner = ?", (f"{host}:{os.getpid()}:1",))
        connection.commit()
    connection.close()
    place.orch("sweep", place.spec(1, dwell_s=0), *place.options)
    assert place.query("select status from attempt order by attempt_id") == [
        {"status": "lost"},
        {"status": "ok"},
    ]
    place.wait_for_no_survivors()


def signal_supervisor(pid: int) -> None:
    """KILL, so that nothing of this orch is left to tidy up."""
    os.kill(pid, signal.SIGKILL)


def test_c10_changed_spec_runs_only_new_cells_and_refuses_a_changed_type(place: Workplace) -> None:
    assert place.sweep(place.spec(2, seq_len=[1, 2])).returncode == 0
    more = place.sweep(place.spec(2, seq_len=[1, 2, 3]))
    assert more.returncode == 0, more.stderr
    assert place.query("select count(*) as n from attempt") == [{"n": 6}]
    fewer = place.sweep(place.spec(2, seq_len=[2, 3]))
    assert fewer.returncode == 0, fewer.stderr
    assert "no longer in the sweep file" in fewer.stderr
    assert place.query("select count(*) as n from attempt") == [{"n": 6}]
    changed = place.sweep(place.spec(2, seq_len=["two"]))
    assert changed.returncode == 2, changed.stderr
    assert place.query("select count(*) as n from job") == [{"n": 6}]


def test_cancel_of_a_sweep_that_nobody_runs_says_so(place: Workplace) -> None:
    assert place.sweep(place.spec()).returncode == 0
    done = place.orch("cancel", "s")
    assert done.returncode == 0
    assert done.stdout == "sweep s: asked to stop; no orch runs it now\n"
    unknown = place.orch("cancel", "other")
    assert unknown.returncode == 2
    assert "there are: s" in unknown.stderr
