"""An allocation whose memory runs out is ``oom_host``, whoever watches the limit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import hungry_worker
from tests.cluster.places import ClusterPlace
from tests.cluster.slurm_cluster import SlurmCluster
from tests.engines.running import WORKER
from tests.leftovers import watched

pytestmark = [pytest.mark.slurm, pytest.mark.postgres]

MEMORY = ["SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=500"]
BY_GATHERING = [
    *MEMORY,
    "JobAcctGatherType=jobacct_gather/linux",
    "JobAcctGatherParams=OverMemoryKill",
    "JobAcctGatherFrequency=task=1",
]
BY_CGROUP = [*MEMORY, "TaskPlugin=task/cgroup", "JobAcctGatherType=jobacct_gather/cgroup"]
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
MEMORY_GROUP = Path("/sys/fs/cgroup/memory")


def has_memory_group() -> bool:
    """Whether Slurm can limit memory here without systemd: a writable controller of the first kind."""
    return (MEMORY_GROUP / "memory.limit_in_bytes").exists() and os.access(MEMORY_GROUP, os.W_OK)


@pytest.fixture(
    scope="module",
    params=[
        "gathering",
        pytest.param(
            "cgroup",
            marks=pytest.mark.skipif(not has_memory_group(), reason="no memory cgroup of the first kind"),
        ),
    ],
)
def limiting(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Two nodes on which memory is limited, by slurmstepd's own sampling or by the kernel."""
    base = Path(tempfile.mkdtemp(prefix="orch-s-", dir="/tmp"))
    by_cgroup = request.param == "cgroup"
    if by_cgroup:
        (base / "cgroup.conf").write_text(CGROUP_CONF)
    cluster = SlurmCluster(base, nodes=2, options=BY_CGROUP if by_cgroup else BY_GATHERING)
    with watched(base, f"SLURM_CONF={cluster.conf}"):
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


@pytest.mark.parametrize("nodes", [1, 2])
def test_memory_of_the_allocation_runs_out(
    limiting: SlurmCluster, db_url: str, tmp_path: Path, nodes: int
) -> None:
    options = ["--engine", "slurm", "--engine-option", "gres=none", "--engine-option", "poll_s=1"]
    place = ClusterPlace(tmp_path, options, db_url, limiting.client_variables())
    spec = place.spec(num_nodes=nodes)
    spec.write_text(spec.read_text().replace(WORKER, f"{hungry_worker.__name__}:main"))
    done = place.sweep(spec, "--engine-option", f"extra=--mem={hungry_worker.LIMIT_MEGABYTES}")
    assert done.returncode == 1, done.stderr
    (row,) = place.query("select status, failure_kind, message from attempt")
    assert (row["status"], row["failure_kind"]) == ("oom_host", None), row["message"]
    assert "memory" in row["message"]
    place.wait_for_no_survivors()
