"""A sweep of real DeepSpeed jobs on the CPU, through the command line."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.engines.running import Workplace

pytestmark = pytest.mark.deepspeed


def test_sweep_of_one_and_two_ranks_measures_everything_and_timed_sections_never_overlap(
    place: Workplace,
) -> None:
    spec = place.folder / "real.yaml"
    spec.write_text(
        "name: real\nrepeats: 2\n"
        "defaults: {hidden_dim: 64, nlayers: 1, iteration: 2, warmup: 1, dtype: float32}\n"
        "matrix: {num_gpus: [1, 2]}\n"
    )
    done = place.sweep(spec, timeout_s=900)
    assert done.returncode == 0, done.stderr
    assert place.statuses() == {"ok": 4}
    assert place.query("select distinct launch_mode from attempt") == [{"launch_mode": "fork"}]
    rows = place.query(
        "select count(*) as n from iteration where states_intact and devices_ok and offload_s > 0"
    )
    assert rows == [{"n": 2 * 2 * (1 + 2)}]
    spans = place.query("select timed_from_at, timed_to_at from attempt order by timed_from_at")
    assert all(before["timed_to_at"] <= after["timed_from_at"] for before, after in pairwise(spans))
    assert "real: 4 jobs (4 ok)" in done.stdout
    place.wait_for_no_survivors()
