"""The same cell through every launcher on real DeepSpeed: same losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.launch.events import Started
from orchestrator.launch.order import LaunchOrder
from orchestrator.spec.axes import AXES
from tests.launch import conftest
from tests.launch.conftest import Bench

pytestmark = pytest.mark.deepspeed
CELL = {axis.name: axis.default for axis in AXES} | {"hidden_dim": 64, "iteration": 3, "warmup": 1}


def records(order: LaunchOrder, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    """A rank's records of one kind."""
    path = Path(order.run_dir) / "spool" / f"rank{rank}.jsonl"
    return [r for line in path.read_text().splitlines() if (r := json.loads(line))["kind"] == kind]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ranks", [1, 2])
def test_launchers_give_equal_losses_and_heaps(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setattr(conftest, "WAIT_S", 1000.0)
    shared_before = {path.name for path in Path("/dev/shm").iterdir()}
    bench = make_bench(prestart=[{}])
    orders = {}
    for launcher in ("fork", "spawn", "deepspeed"):
        order = bench.order(
            "worker.rank:main", ranks=ranks, launcher=launcher, parameters=CELL | {"num_gpus": ranks}
        )
        ended = bench.run(order)
        assert ended.verdict.status == "ok", f"{launcher}: {ended.verdict.message}"
        orders[launcher] = order
    modes = {e.attempt_uid: e.launch_mode for e in bench.said if isinstance(e, Started)}
    assert [modes[order.attempt_uid] for order in orders.values()] == list(orders)
    losses = {name: [r["loss"] for r in records(order, "iteration")] for name, order in orders.items()}
    assert losses["fork"] == losses["spawn"] == losses["deepspeed"]
    tracked = [records(order, "attempt")[0]["tracked_objects"] for order in orders.values()]
    assert max(tracked) < 1.005 * min(tracked)
    left = {path.name for path in Path("/dev/shm").iterdir()} - shared_before
    assert not [name for name in left if name.startswith(("deepspeed_", "torch_"))]
