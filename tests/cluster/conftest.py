"""One Slurm and one PostgreSQL server for all tests here that need them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.places import ClusterPlace, RayPlace
from tests.cluster.ray_cluster import RayCluster
from tests.cluster.slurm_cluster import SlurmCluster
from tests.leftovers import watched
from tests.postgres import PostgresServer, private_server, server_programs


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private server."""
    programs = server_programs()
    assert programs is not None
    with private_server(programs) as server:
        yield server


@pytest.fixture
def db_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database."""
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Three nodes with two pretend GPUs each."""
    base = Path(tempfile.mkdtemp(prefix="orch-s-", dir="/tmp"))
    cluster = SlurmCluster(base)
    with watched(base, f"SLURM_CONF={cluster.conf}"):
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


@pytest.fixture
def slurm_place(slurm: SlurmCluster, db_url: str, tmp_path: Path) -> Iterator[ClusterPlace]:
    """A workplace whose sweeps run on the Slurm; every rank takes a pretend GPU."""
    options = ["--engine", "slurm", "--engine-option", "gres=gpu:{gpus}", "--engine-option", "poll_s=1"]
    yield ClusterPlace(tmp_path, options, db_url, slurm.client_variables())
    slurm.settle()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Two nodes with two processors each."""
    with RayCluster() as cluster, watched(Path(cluster.state_dir), f"ORCH_STATE_DIR={cluster.state_dir}"):
        cluster.add_node()
        yield cluster


@pytest.fixture
def ray_place(ray_cluster: RayCluster, db_url: str, tmp_path: Path) -> RayPlace:
    """A workplace whose sweeps run on the Ray cluster."""
    options = ["--engine", "ray", "--engine-option", f"address={ray_cluster.address}"]
    place = RayPlace(tmp_path, options, db_url)
    place.nodes_state_dir = ray_cluster.state_dir
    return place
