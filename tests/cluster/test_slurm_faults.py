"""What goes wrong on a cluster, done to a real Slurm: each fault ends in the right status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.store import open_store
from orchestrator.store.status import JobStatus, Verdict
from tests.cluster.places import ClusterPlace
from tests.cluster.slurm_cluster import SlurmCluster
from tests.engines import acting_worker as act
from tests.engines.running import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.postgres]

LONG_S = 1000
ATTEMPTS = "select number, status, failure_kind, message, engine_job, host from attempt order by attempt_id"


@pytest.fixture
def place(slurm_place: ClusterPlace) -> ClusterPlace:
    """Where the sweeps run."""
    return slurm_place


def running_job(place: ClusterPlace) -> str:
    """Waits for the ranks of the one job; its Slurm id."""
    question = "select engine_job from attempt where status = 'running' and started_at is not null"
    rows = wait_until(lambda: place.query(question), "the job's ranks run")
    return str(rows[0]["engine_job"])


def slow_job(place: ClusterPlace) -> str:
    """The same for a job that is slow once: it has noted that this was the one time."""
    slurm_id = running_job(place)
    wait_until(lambda: list((place.folder / "orch-runs").glob("*/slow-once")), "the rank is at it")
    return slurm_id


def test_scancel_by_hand_is_cancelled_and_the_others_run_on(place: ClusterPlace, slurm: SlurmCluster) -> None:
    with place.sweeping(place.spec(dwell_s=[LONG_S, 0.01])) as process:
        wait_until(lambda: place.statuses().get("ok"), "the short job is done")
        slurm.run("scancel", running_job(place))
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 1, errors
    assert "1 cancelled by hand. Run with: orch sweep" in errors
    assert place.statuses() == {"ok": 1, "cancelled": 1}, errors
    (row,) = place.query("select message from attempt where status = 'cancelled'")
    assert row["message"].endswith("was cancelled by hand")
    place.wait_for_no_survivors()


def test_time_limit_of_slurm_is_a_timeout(place: ClusterPlace, slurm: SlurmCluster) -> None:
    with place.sweeping(place.spec(dwell_s=LONG_S), "--engine-option", "time_minutes=10") as process:
        slurm.run("scontrol", "update", f"JobId={running_job(place)}", "EndTime=now")
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 1, errors
    (row,) = place.query(ATTEMPTS)
    assert (row["status"], row["message"].partition(" reached ")[2]) == (
        "timeout",
        "the time limit of its allocation",
    )
    place.wait_for_no_survivors()


@pytest.mark.parametrize("seen_running", [True, False])
def test_requeue_is_lost_and_tried_again_as_another_attempt(
    place: ClusterPlace, slurm: SlurmCluster, seen_running: bool
) -> None:
    blind = place.folder / "blind"
    if not seen_running:
        # Every look at the queue comes before the job runs or after it waits again.
        blind.touch()
        _wrap(place, "squeue", f"[ -e {blind} ] && {{ echo Socket timed out >&2; exit 1; }}",
              f'exec {_which("squeue", slurm)} "$@"')  # fmt: skip
    spec = place.spec(micro_batch=act.SLOW_ONCE)
    with place.sweeping(spec, "--engine-option", "extra=--requeue") as process:
        slurm_id = slow_job(place)
        slurm.run("scontrol", "requeue", slurm_id)
        wait_until(
            lambda: slurm.run("squeue", "-h", "-j", slurm_id, "-o", "%T").strip() in ("PENDING", "CANCELLED"),
            "the job waits again",
        )
        blind.unlink(missing_ok=True)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    first, second = place.query(ATTEMPTS)
    assert (first["status"], second["status"]) == ("lost", "ok")
    assert "requeued" in first["message"]
    assert first["engine_job"] != second["engine_job"]
    place.wait_for_no_survivors()


@pytest.mark.parametrize(
    ("partition", "extra", "words"),
    [
        ("main", (), "was preempted"),
        ("spare", ("--engine-option", "extra=--requeue"), "requeued"),
    ],
)
def test_preempted_job_is_lost_and_tried_again(
    place: ClusterPlace, slurm: SlurmCluster, partition: str, extra: tuple[str, ...], words: str
) -> None:
    spec = place.spec(micro_batch=act.SLOW_ONCE)
    with place.sweeping(spec, "--engine-option", f"partition={partition}", *extra) as process:
        slow_job(place)
        take_all_nodes(slurm)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    first, second = place.query(ATTEMPTS)
    assert (first["status"], second["status"]) == ("lost", "ok")
    assert words in first["message"]
    place.wait_for_no_survivors()


def take_all_nodes(slurm: SlurmCluster) -> None:
    """A short job of a partition that may preempt all others."""
    nodes = str(len(slurm.names))
    slurm.run("sbatch", "-p", "urgent", "-N", nodes, "--exclusive", "--output=/dev/null", "--wrap=true")


def test_lost_node_is_lost_and_tried_again_while_its_rank_runs_on(
    place: ClusterPlace, slurm: SlurmCluster
) -> None:
    with place.sweeping(place.spec(micro_batch=act.SLOW_ONCE)) as process:
        slurm_id = slow_job(place)
        node = slurm.run("squeue", "-h", "-j", slurm_id, "-o", "%N").strip()
        slurm.stop_node(node)
        try:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            first, second = place.query(ATTEMPTS)
            assert (first["status"], second["status"]) == ("lost", "ok")
            assert f"lost its node {node}" in first["message"]
            _rank_of_the_lost_node_delivers(place)
        finally:
            slurm.start_node(node)
    slurm.settle()
    place.wait_for_no_survivors()


def _rank_of_the_lost_node_delivers(place: ClusterPlace) -> None:
    """It has been running all along: its rows stay under its attempt, its change of state is refused."""
    (row,) = place.query("select attempt_id, run_dir from attempt where number = 1")
    run_dir = Path(row["run_dir"])
    (run_dir / "go-on").touch()
    wait_until((run_dir / "node.0.json").exists, "the lost node's report")
    with open_store(place.db) as store:
        store.intake(row["attempt_id"], run_dir / "spool")
        assert store.end_attempt(row["attempt_id"], Verdict(JobStatus.ok)) is False
    assert place.query("select number, status from attempt order by number") == [
        {"number": 1, "status": "lost"},
        {"number": 2, "status": "ok"},
    ]
    rows = place.query("select number, count(*) as n from iteration join attempt using (attempt_id)"
                       " group by number order by number")  # fmt: skip
    assert rows == [{"number": 1, "n": 1}, {"number": 2, "n": 1}]
    assert place.query("select 1 from event where message like 'late change to ok refused%'")


def test_restart_of_the_controller_is_said_once_and_nothing_is_lost(
    place: ClusterPlace, slurm: SlurmCluster
) -> None:
    with place.sweeping(place.spec(8, micro_batch=act.WAITS_FOR_GO)) as process:
        running_job(place)
        slurm.stop_controller()
        assert process.stderr is not None
        heard = _read_until(process, "Slurm does not answer")
        slurm.start_controller()
        heard += _read_until(process, "Slurm answers again")
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, heard + errors
    assert (heard + errors).count("Slurm does not answer") == 1
    assert place.statuses() == {"ok": 8}
    assert place.query("select count(*) as n from attempt") == [{"n": 8}]
    place.wait_for_no_survivors()


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    heard = ""
    while words not in heard:
        line = process.stderr.readline()
        assert line, heard
        heard += line
    return heard


def test_c8_killed_orch_leaves_its_slurm_jobs_and_the_next_one_finds_them(
    place: ClusterPlace, slurm: SlurmCluster
) -> None:
    spec = place.spec(3, micro_batch=act.WAITS_FOR_GO)
    with place.sweeping(spec) as process:
        wait_until(
            lambda: len(place.query("select 1 from attempt where started_at is not null")) == 3, "all run"
        )
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert place.statuses() == {"running": 3}
    # Its name finds a job whose number was never stored.
    with open_store(place.db) as store:
        store.attempt_update(1, engine_job=None)
    with place.sweeping(spec) as process:
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert place.statuses() == {"ok": 3}
    assert place.query("select count(*) as n from attempt") == [{"n": 3}]
    place.wait_for_no_survivors()


def test_killed_orch_jobs_that_ended_meanwhile_are_taken_in(place: ClusterPlace, slurm: SlurmCluster) -> None:
    spec = place.spec(2, micro_batch=act.WAITS_FOR_GO)
    with place.sweeping(spec) as process:
        running_job(place)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    (place.folder / "go").touch()
    wait_until(lambda: not slurm.run("squeue", "-h", "--states=running,completing"), "the jobs end")
    done = place.sweep(spec)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 2}
    assert place.query("select distinct number from attempt") == [{"number": 1}]


def test_lost_answer_of_sbatch_does_not_start_the_job_twice(place: ClusterPlace, slurm: SlurmCluster) -> None:
    marker = place.folder / "lost"
    _wrap(
        place,
        "sbatch",
        f'id=$({_which("sbatch", slurm)} "$@") || exit 1',
        f'[ -e {marker} ] && {{ echo "$id"; exit 0; }}',
        f"touch {marker}",
        'echo "sbatch: error: Batch job submission failed: Socket timed out" >&2',
        "exit 1",
    )
    done = place.sweep(place.spec(2))
    assert done.returncode == 0, done.stderr
    names = slurm.run("squeue", "-h", "--states=all", "-o", "%j").split()
    uids = [row["uid"] for row in place.query("select uid from attempt")]
    assert sorted(name for name in names if name in uids) == sorted(uids)
    assert len(uids) == 2


@pytest.mark.parametrize("interrupts", [1, 2])
@pytest.mark.parametrize("is_heard", [True, False], ids=["answered", "answer-lost"])
def test_interrupt_at_the_terminal_while_sbatch_runs_cancels_its_job(
    place: ClusterPlace, slurm: SlurmCluster, interrupts: int, is_heard: bool
) -> None:
    asked, answer = place.folder / "asked", place.folder / "answer"
    _wrap(
        place,
        "sbatch",
        f'id=$({_which("sbatch", slurm)} "$@") || exit 1',
        f"touch {asked}",
        f"until [ -e {answer} ]; do sleep 0.05; done",
        'echo "$id"' if is_heard else 'echo "sbatch: error: Socket timed out" >&2; exit 1',
    )
    with place.sweeping(place.spec(dwell_s=LONG_S)) as process:
        wait_until(asked.exists, "sbatch has handed the job in")
        for _ in range(interrupts):
            os.killpg(process.pid, signal.SIGINT)
        answer.touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    assert place.statuses() == {"cancelled": 1}, errors
    assert "stopped: 1 running job cancelled, nothing lost. Continue with: orch sweep" in errors
    wait_until(lambda: not slurm.run("squeue", "-h", "--states=running,pending,completing"), "Slurm is idle")
    place.wait_for_no_survivors()


def _wrap(place: ClusterPlace, program: str, *lines: str) -> None:
    """Puts a shell script in the place of one of Slurm's commands, for orch alone."""
    script = place.folder / "bin" / program
    script.parent.mkdir()
    script.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    script.chmod(0o755)
    place.environment["PATH"] = f"{script.parent}:{place.environment['PATH']}"


def _which(program: str, slurm: SlurmCluster) -> str:
    found = subprocess.run(["which", program], env=slurm.environment(), capture_output=True, text=True)
    return found.stdout.strip()


def test_refused_submission_fails_with_slurms_own_words(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(), "--engine-option", "qos=none-such", "--engine-option", "constraint=x")
    assert done.returncode == 1
    (row,) = place.query(ATTEMPTS)
    assert (row["status"], row["failure_kind"]) == ("failed", "unsupported")
    assert row["message"].startswith("Slurm refused the job: sbatch: error: ")


def test_unknown_partition_is_refused_before_anything_is_written(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(), "--engine-option", "partition=none-such")
    assert done.returncode == 2
    assert "there is no partition 'none-such'" in done.stderr
    assert "there are: main, spare, urgent" in done.stderr
    assert place.query("select 1 from job") == []


def test_c5_sqlite_is_refused_for_a_cluster_with_reason_and_fix(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(), "--db", place.folder / "orch.db")
    assert done.returncode == 3
    assert "SQLite cannot be written by several hosts" in done.stderr
    assert "use PostgreSQL: --db postgresql://" in done.stderr
    assert not (place.folder / "orch.db").exists()


def test_no_more_jobs_are_queued_than_allowed(place: ClusterPlace) -> None:
    with place.sweeping(
        place.spec(6, micro_batch=act.WAITS_FOR_GO), "--engine-option", "max_queued=2"
    ) as one:
        wait_until(
            lambda: len(place.query("select 1 from attempt where started_at is not null")) == 2, "two run"
        )
        assert place.statuses() == {"running": 2, "pending": 4}
        (place.folder / "go").touch()
        _, errors = one.communicate(timeout=240)
    assert one.returncode == 0, errors
    assert place.statuses() == {"ok": 6}


def test_jobs_on_one_node_have_different_devices(place: ClusterPlace) -> None:
    spec = place.spec(2, micro_batch=act.WAITS_FOR_GO)
    with place.sweeping(spec, "--engine-option", "extra=--nodelist=n1") as process:
        running = "select run_dir from attempt where status = 'running' and started_at is not null"
        rows = wait_until(lambda: len(found := place.query(running)) == 2 and found, "both run")
        assert sorted(map(_devices_of_rank_0, rows)) == ["0", "1"]
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors


def _devices_of_rank_0(row: dict[str, object]) -> str:
    """What its process has been told is visible."""
    spool = Path(str(row["run_dir"])) / "spool" / "rank0.jsonl"
    start = wait_until(lambda: spool.exists() and spool.read_text().partition("\n")[0], "the rank's start")
    environ = Path(f"/proc/{json.loads(start)['pid']}/environ").read_text().split("\0")
    (visible,) = [entry.partition("=")[2] for entry in environ if entry.startswith("CUDA_VISIBLE_DEVICES=")]
    return visible


def test_ranks_of_one_job_see_all_its_devices(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(num_gpus=2, micro_batch=act.PRINTS))
    assert done.returncode == 0, done.stderr
    (wide,) = place.query("select run_dir from attempt")
    for rank in (0, 1):
        assert "devices 0,1\n" in (Path(wide["run_dir"]) / f"rank{rank}.log").read_text()


def test_two_nodes_are_one_group(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(2, num_nodes=2, num_gpus=2))
    assert done.returncode == 0, done.stderr
    assert place.query("select rank, count(*) as n from iteration group by rank order by rank") == [
        {"rank": rank, "n": 2} for rank in range(4)
    ]
    (row,) = place.query("select hosts from attempt where number = 1 and job_id = 1")
    assert row["hosts"].count(",") == 1
    place.wait_for_no_survivors()


def test_b2_silent_rank_on_the_second_node_is_no_result(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(num_nodes=2, micro_batch=act.SECOND_SILENT, limits="retries: 0"))
    assert done.returncode == 1, done.stderr
    (row,) = place.query(ATTEMPTS)
    assert (row["status"], row["failure_kind"]) == ("failed", "no_result")
    # Rank 0 may have been stopped before it was done.
    assert re.search(r"\brank (0, )?1\b", row["message"])
    place.wait_for_no_survivors()
