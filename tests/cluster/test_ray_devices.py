"""Which devices do ranks on a Ray cluster get? Its node says that it has two GPUs; none is there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import pretend_nvml
from tests.cluster.places import RayPlace
from tests.cluster.ray_cluster import RayCluster
from tests.engines import acting_worker as act
from tests.engines.running import wait_until
from tests.leftovers import watched

pytestmark = [pytest.mark.ray, pytest.mark.postgres]


@pytest.fixture
def place(db_url: str, tmp_path: Path) -> Iterator[RayPlace]:
    """A workplace on a node of its own Ray, with two devices."""
    modules = tmp_path / "modules"
    modules.mkdir()
    shutil.copy(Path(pretend_nvml.__file__), modules / "pynvml.py")
    with (
        RayCluster(gpus=pretend_nvml.DEVICES, modules=modules) as cluster,
        watched(Path(cluster.state_dir), f"ORCH_STATE_DIR={cluster.state_dir}"),
    ):
        options = ["--engine", "ray", "--engine-option", f"address={cluster.address}", "--no-probe"]
        found = RayPlace(tmp_path, options, db_url, {"DS_ACCELERATOR": "cuda"})
        found.nodes_state_dir = cluster.state_dir
        yield found


def test_jobs_side_by_side_have_different_devices_and_a_wide_one_has_all(place: RayPlace) -> None:
    with place.sweeping(place.spec(2, micro_batch=act.WAITS_FOR_GO)) as process:
        running = "select run_dir, device_uuids from attempt where started_at is not null"
        rows = wait_until(lambda: len(found := place.query(running)) == 2 and found, "both run")
        (place.folder / "go").touch()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert sorted(map(_visible, rows)) == ["0", "1"]
    done = place.sweep(place.spec(name="wide", num_gpus=2, micro_batch=act.PRINTS))
    assert done.returncode == 0, done.stderr
    (wide,) = place.query(
        "select run_dir, device_uuids from attempt join job using (job_id) where num_gpus = 2"
    )
    assert _visible(wide) == "0,1"
    assert wide["device_uuids"] == '["GPU-0", "GPU-1"]'
    place.wait_for_no_survivors()


def _visible(row: dict[str, object]) -> str:
    log = Path(str(row["run_dir"])) / "rank0.log"
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("devices ")]
    return line.removeprefix("devices ")
