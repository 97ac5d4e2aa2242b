"""What can never run here, and the arithmetic that says so."""

from __future__ import annotations

import pytest

from orchestrator.engines.admission import Need, need_of_cell, refusal
from orchestrator.engines.base import Capacity
from orchestrator.engines.forecast import forecast
from orchestrator.spec.cell import make_cell
from orchestrator.spec.load import parse_plan

GPU = Capacity(2, 2, 1, "cuda", 139_800_000_000, 256_000_000_000)
CPU = Capacity(2, 2, 1, "cpu", None, 8_000_000_000)


@pytest.mark.parametrize(
    ("need", "capacity", "reason"),
    [
        (Need(2, 1, 10**9, 10**9), GPU, None),
        (Need(4, 1, 0, 0, num_gpus=4), GPU, "num_gpus 4 > 2 devices"),
        (
            Need(4, 1, 0, 0, num_gpus=2, contention=2),
            GPU,
            "num_gpus 2 x contention 2 = 4 > 2 devices",
        ),
        (Need(4, 1, 0, 0, num_gpus=4), CPU, "num_gpus 4 > 2 slots (--slots 4 gives more)"),
        (Need(1, 2, 0, 0), GPU, "num_nodes 2 > 1 host"),
        (
            Need(1, 1, 310_200_000_000, 0, "hidden_dim 49152, nlayers 8"),
            GPU,
            "predicted 310.2 GB of device memory, 139.8 GB are there (hidden_dim 49152, nlayers 8)",
        ),
        (
            Need(2, 1, 10**9, 137_400_000_000, "hidden_dim 8"),
            GPU,
            "predicted pinned host memory 137.4 GB x 2 ranks = 274.8 GB, 256.0 GB are there (hidden_dim 8)",
        ),
        (
            Need(1, 1, 9_000_000_000, 0, "hidden_dim 8"),
            CPU,
            (
                "predicted host memory (9.0 GB + 0.0 GB offloaded) x 1 rank = 9.0 GB, 8.0 GB are there"
                " (hidden_dim 8)"
            ),
        ),
    ],
)
def test_refusal_says_the_arithmetic(need: Need, capacity: Capacity, reason: str | None) -> None:
    assert refusal(need, capacity) == reason


def test_refusal_unknown_capacity_admits_everything() -> None:
    assert refusal(Need(64, 1, 10**15, 10**15), Capacity()) is None


def test_refusal_names_what_deepspeed_cannot_run_before_it_is_started() -> None:
    half = Need(1, 1, 0, 0, cell=make_cell({"dtype": "float16"}))
    assert refusal(half, CPU) == "fp16 does not run on a CPU"
    assert refusal(half, GPU) is None
    assert refusal(half, Capacity()) is None


def test_forecast_leaves_out_of_the_plan_what_will_be_skipped() -> None:
    plan = parse_plan("name: a\nmatrix: {num_gpus: [1, 4096]}\nrepeats: 2\nengine: {name: local, slots: 2}")
    admitted = forecast(plan).admitted(plan)
    assert [cell.effective("num_gpus") for cell in admitted.cells] == [1]
    assert len(admitted.jobs) == 2


def test_size_of_a_named_model_is_its_name() -> None:
    named = need_of_cell(make_cell({"model": "qwen2.5-1.5b"}), 0, 0)
    own = need_of_cell(make_cell({"model": "transformer", "nlayers": 3}), 0, 0)
    assert (named.size, own.size) == ("model qwen2.5-1.5b", "hidden_dim 1024, nlayers 3")
