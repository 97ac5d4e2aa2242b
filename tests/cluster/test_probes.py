"""Link probes on the nodes of a real Slurm and a real Ray.

The nodes have no GPU, so a script stands in for the copies (``ORCH_LINK_PROBE``); everything around it is
the real thing: who calls it, when, and how its rows reach the database.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from tests.cluster.places import ClusterPlace, RayPlace

ROWS = "select host, device_uuid, direction, pinned, devices_at_once, probed_at from link_probe p"
OF_THE_SWEEP = f"{ROWS} join sweep using (sweep_id) where sweep.name = 's'"


def scripted(place: ClusterPlace) -> Path:
    """Have the place's sweeps use the script; the file that tells of its calls."""
    calls = place.folder / "probe-calls"
    script = Path(__file__).with_name("scripted_probe.py")
    place.environment["ORCH_LINK_PROBE"] = shlex.join([sys.executable, str(script), str(calls)])
    return calls


def count(calls: Path) -> int:
    """How often the script has been called."""
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def check_rows(place: ClusterPlace, probes: int) -> None:
    """Every row is there once, under the sweep, of the node's host."""
    rows = place.query(OF_THE_SWEEP)
    assert len(rows) == 4 * probes
    assert {row["host"] for row in rows} == {socket.gethostname()}
    assert {row["device_uuid"] for row in rows} == {"GPU-pretended"}
    assert len({(row["direction"], row["pinned"]) for row in rows}) == 4


@pytest.mark.slurm
@pytest.mark.postgres
def test_slurm_node_is_probed_before_its_first_job_and_when_the_last_time_is_old(
    slurm_place: ClusterPlace,
) -> None:
    place, calls = slurm_place, scripted(slurm_place)
    assert place.sweep(place.spec(3)).returncode == 0
    assert count(calls) == 1
    check_rows(place, 1)
    (stamp,) = (Path(place.environment["ORCH_STATE_DIR"]) / "probed").iterdir()
    os.utime(stamp, (0, 0))
    done = place.sweep(place.spec(5))
    assert done.returncode == 0, done.stderr
    assert count(calls) == 2
    check_rows(place, 2)


@pytest.mark.slurm
@pytest.mark.postgres
def test_no_probe_is_respected_on_nodes(slurm_place: ClusterPlace) -> None:
    calls = scripted(slurm_place)
    for mode in ("job", "pilot"):
        spec = slurm_place.spec(1, name=mode)
        assert slurm_place.sweep(spec, "--no-probe", "--engine-option", f"mode={mode}").returncode == 0
    assert count(calls) == 0
    assert slurm_place.query("select 1 from link_probe") == []


@pytest.mark.slurm
@pytest.mark.postgres
def test_failing_probe_is_said_in_the_jobs_log_and_keeps_nothing_back(slurm_place: ClusterPlace) -> None:
    slurm_place.environment["ORCH_LINK_PROBE"] = "false"
    assert slurm_place.sweep(slurm_place.spec(1)).returncode == 0
    (row,) = slurm_place.query("select run_dir from attempt")
    assert "link probe: failed (exit status 1)" in (Path(row["run_dir"]) / "slurm.log").read_text()


@pytest.mark.slurm
@pytest.mark.postgres
def test_pilot_is_probed_at_its_start_and_at_its_end(slurm_place: ClusterPlace) -> None:
    calls = scripted(slurm_place)
    done = slurm_place.sweep(slurm_place.spec(4), "--engine-option", "mode=pilot")
    assert done.returncode == 0, done.stderr
    assert count(calls) == 2
    check_rows(slurm_place, 2)


@pytest.mark.slurm
@pytest.mark.postgres
def test_each_node_of_a_slurm_job_measures_its_link(slurm_place: ClusterPlace) -> None:
    place, calls = slurm_place, scripted(slurm_place)
    # Both nodes are this host: the second one finds it measured.
    assert place.sweep(place.spec(1, num_nodes=2)).returncode == 0
    assert count(calls) == 1
    (row,) = place.query("select hosts from attempt")
    assert row["hosts"].count(socket.gethostname()) == 2
    ranks = place.query("select rank, host from attempt_rank order by rank")
    assert ranks == [{"rank": rank, "host": socket.gethostname()} for rank in (0, 1)]


@pytest.mark.ray
@pytest.mark.postgres
def test_ray_node_is_probed_before_its_first_job(ray_place: RayPlace) -> None:
    calls = scripted(ray_place)
    for stamp in (Path(ray_place.nodes_state_dir) / "probed").glob("*"):
        stamp.unlink()
    assert ray_place.sweep(ray_place.spec(3)).returncode == 0
    assert count(calls) == 1
    check_rows(ray_place, 1)
    assert ray_place.sweep(ray_place.spec(1, name="quiet"), "--no-probe").returncode == 0
    assert count(calls) == 1
    ranks = ray_place.query("select distinct host from attempt_rank")
    assert ranks == [{"host": socket.gethostname()}]
