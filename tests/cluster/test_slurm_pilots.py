"""Pilots: allocations that take jobs from the database, on a real Slurm."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cluster.places import ClusterPlace
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.test_slurm_faults import take_all_nodes
from tests.engines import acting_worker as act
from tests.engines.running import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.postgres]

PILOT = ("--engine-option", "mode=pilot")
STARTED = "select engine_job from attempt where status = 'running' and started_at is not null"
RUNNING = "select owner from attempt where status = 'running'"


@pytest.fixture
def place(slurm_place: ClusterPlace) -> ClusterPlace:
    """Where the sweeps run; a pilot has the two pretend GPUs of a node."""
    return slurm_place


def test_one_allocation_runs_fifty_jobs_two_at_a_time(place: ClusterPlace, slurm: SlurmCluster) -> None:
    done = place.sweep(place.spec(50), *PILOT)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 50}
    rows = place.query("select count(*) as n, count(distinct engine_job) as pilots from attempt")
    assert rows == [{"n": 50, "pilots": 1}]
    assert place.query("select distinct launch_mode from attempt") == [{"launch_mode": "fork"}]
    place.wait_for_no_survivors()


def test_more_pilots_than_three_are_no_sign_of_trouble(place: ClusterPlace, slurm: SlurmCluster) -> None:
    done = place.sweep(place.spec(12, dwell_s=0.5), *PILOT, "--engine-option", "max_pilots=5")
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 12}
    place.wait_for_no_survivors()


def test_pilots_that_never_get_to_a_job_end_the_sweep_with_the_place_of_their_logs(
    place: ClusterPlace,
) -> None:
    place.environment["PYTHONPATH"] += os.pathsep + str(place.folder)
    (place.folder / "sitecustomize.py").write_text(
        "import sys\nif 'orchestrator.launch.pilot' in sys.orig_argv: sys.exit(1)\n"
    )
    done = place.sweep(place.spec(2), *PILOT)
    assert done.returncode == 2
    assert "3 pilots in a row ended without a job; see their logs in" in done.stderr
    assert place.statuses() == {"pending": 2}


def test_failed_jobs_are_tried_again_and_told(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(micro_batch=[act.OK, act.FAILS_ONCE, act.RAISES]), *PILOT)
    assert done.returncode == 1, done.stderr
    assert place.statuses() == {"ok": 2, "failed": 1}
    assert "3 ran in" in done.stderr


def test_b5_interrupt_cancels_what_pilots_run(place: ClusterPlace, slurm: SlurmCluster) -> None:
    with place.sweeping(place.spec(4, dwell_s=1000), *PILOT) as process:
        wait_until(lambda: len(place.query(RUNNING)) == 2, "two jobs run")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    assert place.statuses() == {"cancelled": 2, "pending": 2}
    place.wait_for_no_survivors()


def test_killed_pilot_its_jobs_are_lost_and_tried_again(place: ClusterPlace, slurm: SlurmCluster) -> None:
    with place.sweeping(place.spec(2, micro_batch=act.WAITS_FOR_GO), *PILOT) as process:
        owner = wait_until(lambda: place.query(RUNNING), "a job runs")[0]["owner"]
        os.kill(int(owner.split(":")[1]), signal.SIGKILL)
        wait_until(lambda: place.query("select 1 from attempt where status = 'lost'"), "it is lost")
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert place.statuses() == {"ok": 2}
    place.wait_for_no_survivors()


@pytest.mark.parametrize("preempted", [False, True])
def test_pilot_that_slurm_ends_its_jobs_are_lost_and_tried_again(
    place: ClusterPlace, slurm: SlurmCluster, preempted: bool
) -> None:
    spec = place.spec(2, micro_batch=act.WAITS_FOR_GO, limits="retries: 0")
    with place.sweeping(spec, *PILOT) as process:
        wait_until(lambda: len(place.query(STARTED)) == 2, "both run")
        if preempted:
            take_all_nodes(slurm)
        else:
            slurm.run("scancel", place.query(STARTED)[0]["engine_job"])
        lost = "select 1 from attempt where status = 'lost'"
        wait_until(lambda: len(place.query(lost)) == 2, "both are lost")
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert place.statuses() == {"ok": 2}
    messages = place.query("select distinct message from attempt where status = 'lost'")
    assert messages == [{"message": "its pilot was told to stop"}]
    place.wait_for_no_survivors()


def test_pilot_stops_after_as_many_failures_in_a_row_as_the_sweep_allows(place: ClusterPlace) -> None:
    spec = place.spec(8, micro_batch=act.RAISES, limits="retries: 0, consecutive_failures: 3")
    done = place.sweep(spec, *PILOT, "--engine-option", "gpus_per_node=1")
    assert done.returncode == 1, done.stderr
    assert place.statuses() == {"failed": 3, "pending": 5}
    assert "3 failures in a row" in done.stderr, done.stderr


def test_job_of_several_nodes_is_skipped_with_the_reason(place: ClusterPlace) -> None:
    done = place.sweep(place.spec(num_nodes=2), *PILOT)
    assert done.returncode == 0, done.stderr
    assert place.query("select reason from job") == [{"reason": "num_nodes 2 > 1 host"}]
