"""What goes wrong on a Ray cluster, done to a real one: each fault ends in the right status."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.remote_node import Wish, run_here, write_files
from tests.cluster.places import RayPlace
from tests.cluster.ray_cluster import RayCluster
from tests.engines import acting_worker as act
from tests.engines.running import WORKER, Workplace, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.postgres]

RUNNING = "select 1 from attempt where status = 'running' and started_at is not null"


@pytest.fixture
def place(ray_place: RayPlace) -> RayPlace:
    """Where the sweeps run."""
    return ray_place


def test_two_nodes_are_one_group(place: RayPlace) -> None:
    done = place.sweep(place.spec(2, num_nodes=2, num_gpus=2))
    assert done.returncode == 0, done.stderr
    assert place.query("select rank, count(*) as n from iteration group by rank order by rank") == [
        {"rank": rank, "n": 2} for rank in range(4)
    ]
    assert place.query("select number from attempt where hosts is not null") == [{"number": 1}] * 2
    place.wait_for_no_survivors()


def test_b2_silent_rank_on_the_second_node_is_no_result(place: RayPlace) -> None:
    done = place.sweep(place.spec(num_nodes=2, micro_batch=act.SECOND_SILENT, limits="retries: 0"))
    assert done.returncode == 1, done.stderr
    (row,) = place.query("select status, failure_kind, message from attempt")
    assert (row["status"], row["failure_kind"]) == ("failed", "no_result")
    # Rank 0 may have been stopped before it was done.
    assert re.search(r"\brank (0, )?1\b", row["message"])
    place.wait_for_no_survivors()


def test_killed_driver_leaves_nothing_and_the_sweep_continues(place: RayPlace) -> None:
    spec = place.spec(2, micro_batch=act.WAITS_FOR_GO)
    with place.sweeping(spec) as process:
        wait_until(lambda: len(place.query(RUNNING)) == 2, "both run")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        place.wait_for_no_survivors()
    (place.folder / "go").touch()
    done = place.sweep(spec)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 2}
    assert place.query("select status, count(*) as n from attempt group by status order by status") == [
        {"status": "lost", "n": 2},
        {"status": "ok", "n": 2},
    ]


def test_killed_worker_leaves_nothing_however_long_the_grace(place: RayPlace) -> None:
    spec = place.spec(micro_batch=act.IGNORES_TERM, dwell_s=1000, limits="retries: 0")
    spec.write_text(spec.read_text().replace("grace_s: 1", "grace_s: 1000"))
    with place.sweeping(spec) as process:
        wait_until(lambda: place.query(RUNNING), "it runs")
        os.kill(place.ray_worker(), signal.SIGKILL)
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 1, errors
        place.wait_for_no_survivors()
    assert place.statuses() == {"lost": 1}


def test_dead_node_is_lost_and_tried_again(place: RayPlace, ray_cluster: RayCluster) -> None:
    victim = ray_cluster.add_node()
    # Three ranks at once fill two nodes; the third node gets the rest.
    with place.sweeping(place.spec(5, micro_batch=act.WAITS_FOR_GO)) as process:
        wait_until(lambda: len(place.query(RUNNING)) == 5, "all run")
        ray_cluster.kill_node(victim)
        lost = "select 1 from attempt where status = 'lost'"
        wait_until(lambda: place.query(lost), "the node's jobs are lost")
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert place.statuses() == {"ok": 5}
    for row in place.query("select message from attempt where status = 'lost'"):
        assert row["message"].startswith("Ray lost its node or worker")
    place.wait_for_no_survivors()


def test_cluster_without_room_any_more_is_lost_and_says_so(place: RayPlace, ray_cluster: RayCluster) -> None:
    victim = ray_cluster.add_node()
    spec = place.spec(num_nodes=3, micro_batch=act.WAITS_FOR_GO, limits="retries: 1")
    with place.sweeping(spec, "--engine-option", "start_timeout_s=1") as process:
        wait_until(lambda: place.query(RUNNING), "it runs")
        ray_cluster.kill_node(victim)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 1, errors
    rows = place.query("select status, message from attempt order by number")
    assert [row["status"] for row in rows] == ["lost", "lost"]
    assert rows[1]["message"] == "Ray has no room any more: 2 nodes with 1 CPU, 3 are needed"
    place.wait_for_no_survivors()


def test_no_cluster_at_the_address_is_one_line(place: RayPlace) -> None:
    done = place.sweep(place.spec(), "--engine-option", "address=127.0.0.1:1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot connect to Ray at 127.0.0.1:1" in line


def test_c5_sqlite_is_refused_on_a_cluster_that_others_started(place: RayPlace) -> None:
    done = place.sweep(place.spec(), "--db", place.folder / "orch.db")
    assert done.returncode == 3
    assert "SQLite cannot be written by several hosts" in done.stderr


def test_local_ray_is_started_takes_sqlite_and_is_gone_afterwards(tmp_path: Path) -> None:
    place = Workplace(tmp_path, ["--engine", "ray"])
    place.environment.pop("RAY_ADDRESS", None)
    done = place.sweep(place.spec(2))
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 2}
    assert "usage" not in done.stderr.lower()
    place.wait_for_no_survivors()


def test_node_that_does_not_see_orchs_folder_hands_its_files_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_STATE_DIR", str(tmp_path / "node"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    order = LaunchOrder(
        attempt_uid="u" * 8,
        attempt_id=1,
        job_id=1,
        sweep="s",
        parameters={"micro_batch": act.PRINTS, "iteration": 2, "dwell_s": 0.0},
        run_dir=str(tmp_path / "orch" / "run"),
        ranks=(RankPlacement(0, 0),),
        world_size=1,
        accelerator="cpu",
        db_url=None,
        launcher="spawn",
        worker=WORKER,
        timed_section=False,
        finish=False,
    )
    report, files = run_here(order, ".seen", lambda _events: Wish.GO_ON, None, None)
    assert report.delivered
    assert not (tmp_path / "node" / "attempts" / order.attempt_uid).exists()
    paths = AttemptPaths(Path(order.run_dir))
    write_files(paths, files)
    assert "a line for the log" in paths.log(0).read_text()
    assert paths.spool(0).read_text().count('"iteration"') >= 2
