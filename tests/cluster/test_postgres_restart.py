"""PostgreSQL is restarted in mid-sweep: nothing is lost, nothing runs twice, nobody has to do anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.places import ClusterPlace
from tests.cluster.ray_cluster import RayCluster
from tests.cluster.slurm_cluster import SlurmCluster
from tests.engines import acting_worker as act
from tests.engines.running import wait_until
from tests.postgres import PostgresServer

pytestmark = pytest.mark.postgres

JOBS = 12
SLURM = ["--engine", "slurm", "--engine-option", "gres=gpu:{gpus}", "--engine-option", "poll_s=1"]


def check(place: ClusterPlace, server: PostgresServer) -> None:
    """A sweep that runs through two restarts, one while its jobs run and one while they end."""
    with place.sweeping(place.spec(JOBS, micro_batch=act.WAITS_FOR_GO)) as process:
        running = "select 1 from attempt where status = 'running' and started_at is not null"
        wait_until(lambda: len(place.query(running)) >= 2, "two jobs run")
        server.stop("immediate")
        (place.folder / "go").touch()
        folder = place.folder / "orch-runs"
        wait_until(
            lambda: sum('"final"' in file.read_text() for file in folder.glob("*/*/spool/*.jsonl")) >= 2,
            "ranks deliver while the server is away",
        )
        server.start()
        wait_until(lambda: place.statuses().get("ok"), "the first job is recorded")
        server.stop("fast")
        server.start()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert place.statuses() == {"ok": JOBS}
    assert place.query("select count(*) as n from attempt") == [{"n": JOBS}]
    assert place.query("select count(*) as n from iteration") == [{"n": JOBS}]
    assert "Traceback" not in errors
    place.wait_for_no_survivors()


def test_restart_under_the_local_engine(own_server: PostgresServer, tmp_path: Path) -> None:
    check(
        ClusterPlace(tmp_path, ["--engine", "local", "--slots", "2"], own_server.new_database()), own_server
    )


@pytest.mark.slurm
@pytest.mark.parametrize("mode", ["job", "pilot"])
def test_restart_under_slurm(
    own_server: PostgresServer, slurm: SlurmCluster, tmp_path: Path, mode: str
) -> None:
    options = [*SLURM, "--engine-option", f"mode={mode}"]
    check(ClusterPlace(tmp_path, options, own_server.new_database(), slurm.client_variables()), own_server)
    slurm.settle()


@pytest.mark.ray
def test_restart_under_ray(own_server: PostgresServer, ray_cluster: RayCluster, tmp_path: Path) -> None:
    options = ["--engine", "ray", "--engine-option", f"address={ray_cluster.address}"]
    check(ClusterPlace(tmp_path, options, own_server.new_database()), own_server)
