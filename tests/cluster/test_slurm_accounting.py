"""What the controller has forgotten is asked of accounting: a real slurmdbd over a real MariaDB."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.places import ClusterPlace
from tests.cluster.slurm_accounting import AccountedCluster, missing_programs
from tests.engines.running import wait_until
from tests.leftovers import watched

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.postgres,
    pytest.mark.skipif(bool(missing_programs()), reason=f"no {', '.join(missing_programs())}"),
]


@pytest.fixture(scope="module")
def accounted() -> Iterator[AccountedCluster]:
    """One node, accounting, and a controller that forgets."""
    base = Path(tempfile.mkdtemp(prefix="orch-s-", dir="/tmp"))
    cluster = AccountedCluster(base)
    with watched(base, f"SLURM_CONF={cluster.conf}"):
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def test_forgotten_job_of_a_killed_orch_ends_as_accounting_says(
    accounted: AccountedCluster, db_url: str, tmp_path: Path
) -> None:
    options = ["--engine", "slurm", "--engine-option", "gres=none", "--engine-option", "poll_s=1"]
    place = ClusterPlace(tmp_path, options, db_url, accounted.client_variables())
    spec = place.spec(dwell_s=1000)
    with place.sweeping(spec) as process:
        running = "select engine_job from attempt where started_at is not null"
        slurm_id = wait_until(lambda: place.query(running), "it runs")[0]["engine_job"]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    accounted.run("scancel", slurm_id)
    wait_until(lambda: not accounted.run("squeue", "-h", "--states=all"), "the controller has forgotten it")
    assert accounted.run("sacct", "-X", "-n", "-P", "-j", slurm_id, "-o", "State") == "CANCELLED by 0\n"
    done = place.sweep(spec)
    assert done.returncode == 1, done.stderr
    # Without accounting it would be lost, and tried again.
    assert place.query("select status, message from attempt") == [
        {"status": "cancelled", "message": f"Slurm job {slurm_id} was cancelled by hand"}
    ]
    place.wait_for_no_survivors()
