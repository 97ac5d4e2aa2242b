"""Real DeepSpeed ranks on two nodes: one ZeRO-3 group over gloo, through Slurm and through Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.places import ClusterPlace

SPEC = """
name: zero3
defaults:
  {model: linear, hidden_dim: 32, nlayers: 2, iteration: 2, warmup: 1, zero_stage: 3, num_nodes: 2}
limits: {timeout_s: 300, retries: 0}
"""


def check(place: ClusterPlace, folder: Path) -> None:
    """The sweep is ok, every rank on its node, with an environment row of each host."""
    spec = folder / "zero3.yaml"
    spec.write_text(SPEC)
    done = place.sweep(spec, timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 1}
    rows = place.query("select rank, count(*) as n, bool_and(states_intact) as intact from iteration"
                       " group by rank order by rank")  # fmt: skip
    assert [row["rank"] for row in rows] == [0, 1]
    assert all(row["intact"] and row["n"] >= 2 for row in rows)
    (attempt,) = place.query("select hosts, port, launch_mode from attempt")
    assert len(json.loads(attempt["hosts"])) == 2
    assert attempt["port"] is not None
    ranks = place.query("select host, environment_id from attempt_rank order by rank")
    assert all(rank["host"] and rank["environment_id"] for rank in ranks)
    place.wait_for_no_survivors()


@pytest.mark.slurm
@pytest.mark.postgres
@pytest.mark.deepspeed
def test_zero3_over_two_slurm_nodes(slurm_place: ClusterPlace, tmp_path: Path) -> None:
    check(slurm_place, tmp_path)


@pytest.mark.ray
@pytest.mark.postgres
@pytest.mark.deepspeed
def test_zero3_over_two_ray_nodes(ray_place: ClusterPlace, tmp_path: Path) -> None:
    check(ray_place, tmp_path)
