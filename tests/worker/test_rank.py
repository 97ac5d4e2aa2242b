"""Real ranks on real DeepSpeed engines, CPU, tiny sizes."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.spec.axes import STATE_NAMES, AxisValue
from orchestrator.spec.bytes import predict_values
from tests.worker import ranks
from tests.worker.ranks import Outcome, run_job

pytestmark = pytest.mark.deepspeed


def assert_delivered(outcome: Outcome, iterations: int) -> None:
    assert outcome.exit_statuses == [0] * len(outcome.records), outcome.logs
    for records in outcome.records:
        assert records[0]["kind"] == "start"
        assert records[-1]["kind"] == "final"
        assert records[-1]["iterations"] == iterations
        rows = [record for record in records if record["kind"] == "iteration"]
        assert [row["iteration"] for row in rows] == list(range(iterations))
        for row in rows:
            assert row["states_intact"] is True
            assert row["devices_ok"] is True
            assert row["bytes_match"] is None
            assert 0 < row["offload_host_s"] <= row["offload_s"] <= row["offload_all_s"]
            assert 0 < row["reload_host_s"] <= row["reload_s"] <= row["reload_all_s"]


def test_rank_stage3_two_ranks_records_every_iteration_and_phase(tmp_path: Path) -> None:
    axes: dict[str, AxisValue] = {"instrumented": 1, "dwell_s": 0.01, "hold_bytes": 1000, "gc_freeze": True}
    outcome = run_job(tmp_path, ranks=2, axes=axes)
    assert_delivered(outcome, iterations=3)
    rows = outcome.of_kind("iteration", rank=1)
    assert [row["is_warmup"] for row in rows] == [True, False, False]
    assert [row["is_cold"] for row in rows] == [True, False, False]
    assert [row["is_instrumented"] for row in rows] == [False, False, True]
    assert rows[1]["offload_gc_s"] is None
    assert rows[2]["offload_gc_s"] > 0
    assert set(json.loads(rows[2]["state_split"])) == set(STATE_NAMES)
    prediction = predict_values({**ranks.TINY, "num_gpus": 2}, ranks.SMALL_BUCKET)
    assert {row["copied_bytes"] for row in rows} == {prediction.copied_bytes}
    assert {row["predicted_freed_bytes"] for row in rows} == {prediction.freed_bytes}
    samples = outcome.of_kind("sample", rank=1)
    assert [sample["sample"] for sample in samples] == list(range(15))
    assert [s["phase"] for s in samples[:5]] == [
        "before_step",
        "after_step",
        "offloaded",
        "dwell",
        "reloaded",
    ]
    (attempt,) = outcome.of_kind("attempt")
    assert json.loads(attempt["ds_config"])["zero_optimization"] == {"stage": 3, "reduce_bucket_size": 50_000}
    assert attempt["tracked_objects"] > 10_000
    (described,) = outcome.of_kind("environment")
    assert described["deepspeed"]
    assert described["accelerator"] == "cpu"
    assert not outcome.of_kind("environment", rank=1)


@pytest.mark.parametrize(
    ("stage", "axes"),
    [
        (1, {"dtype": "float32", "param_groups": 2, "model": "transformer", "vocab_size": 64, "seq_len": 8}),
        (2, {"included_state": "optim_states+hp_params+lp_params", "pin_memory": False, "non_blocking": True,
             "frozen_fraction": 0.5, "instrumented": 1}),
    ],
)  # fmt: skip
def test_rank_stages_1_and_2_two_ranks_deliver(
    stage: int, axes: dict[str, AxisValue], tmp_path: Path
) -> None:
    axes = {**axes, "zero_stage": stage}
    outcome = run_job(tmp_path, ranks=2, axes=axes)
    assert_delivered(outcome, iterations=3 if axes.get("instrumented") else 2)
    prediction = predict_values({**ranks.TINY, **axes, "num_gpus": 2}, {})
    assert outcome.of_kind("iteration", rank=1)[1]["copied_bytes"] == prediction.copied_bytes


HEAP_WATCHER = """
import json, sys
from worker.model import SimpleModel
FOREIGN = {"sqlalchemy", "pandas", "click", "rich", "ruamel", "scipy", "orchestrator.store"}
class Watched(SimpleModel):
    def forward(self, x, y):
        with open("foreign.jsonl", "a") as log:
            log.write(json.dumps(sorted(FOREIGN & set(sys.modules))) + "\\n")
        return super().forward(x, y)
def build(values):
    return Watched(values["hidden_dim"], nlayers=values["nlayers"])
"""


def test_rank_holds_nothing_foreign_until_its_last_timed_section(tmp_path: Path) -> None:
    (tmp_path / "watcher.py").write_text(HEAP_WATCHER)
    outcome = run_job(
        tmp_path, axes={"model": "watcher:build"}, commit=True, db_url="sqlite:////nonexistent/x.db"
    )
    assert_delivered(outcome, iterations=2)
    assert (tmp_path / "foreign.jsonl").read_text().splitlines() == ["[]", "[]"]
    # The store came afterwards, and its failure cost nothing.
    assert "records stay in" in outcome.logs[0]


STALE_RESTORE = """
import torch
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Optimizer
from worker.model import SimpleModel
reload_states = Optimizer.reload_states
def stale(self, non_blocking=False):
    reload_states(self, non_blocking)
    with torch.no_grad():
        self.fp32_partitioned_groups_flat[0][3] = float("nan")
Optimizer.reload_states = stale
def build(values):
    return SimpleModel(values["hidden_dim"], nlayers=values["nlayers"])
"""


def test_rank_states_changed_is_reported_at_once_and_nothing_is_delivered(tmp_path: Path) -> None:
    (tmp_path / "stale.py").write_text(STALE_RESTORE)
    outcome = run_job(tmp_path, axes={"model": "stale:build"})
    assert outcome.exit_statuses == [1]
    (error,) = outcome.of_kind("error")
    assert error["failure_kind"] == "states_changed"
    assert error["message"] == "iteration 0: hp_params changed over offload/reload"
    assert outcome.of_kind("iteration")[0]["states_intact"] is False
    assert not outcome.of_kind("final")


def test_rank_frozen_parameters_with_lp_params_fail_with_deepspeeds_message(tmp_path: Path) -> None:
    outcome = run_job(tmp_path, axes={"frozen_fraction": 0.5})
    assert outcome.exit_statuses == [1]
    (error,) = outcome.of_kind("error")
    assert (error["status"], error["failure_kind"]) == ("failed", "exception")
    assert "exceeds dimension size" in error["message"]
    assert "\n" not in error["message"]
    assert "Traceback" in error["traceback"]


def test_rank_fp16_on_cpu_is_skipped_with_the_reason(tmp_path: Path) -> None:
    outcome = run_job(tmp_path, axes={"dtype": "float16"})
    (error,) = outcome.of_kind("error")
    assert (error["status"], error["message"]) == ("skipped", "fp16 does not run on a CPU")


def test_b9_rank_port_in_use_is_a_port_failure(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        outcome = run_job(tmp_path, port=stranger.getsockname()[1])
    (error,) = outcome.of_kind("error")
    assert error["failure_kind"] == "port", error


def test_rank_neighbour_runs_until_the_stop_file_and_records_no_figures(tmp_path: Path) -> None:
    job = replace(ranks.job_of(tmp_path, 1, {}, ranks.SMALL_BUCKET), role="neighbour")
    processes = ranks.start(job)
    spool = tmp_path / "spool" / "rank0.jsonl"
    while not (spool.exists() and "timed_from" in spool.read_text()):
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[0].wait(0.05)
            break
    (tmp_path / "stop").touch()
    outcome = ranks.finish(job, processes)
    assert outcome.exit_statuses == [0], outcome.logs
    assert [record["kind"] for record in outcome.records[0] if record["kind"] != "environment"] == [
        "start", "attempt", "timed_from", "timed_to", "final",
    ]  # fmt: skip
