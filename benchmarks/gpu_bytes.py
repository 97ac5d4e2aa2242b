"""Is the byte formula right on this GPU host, and is a stale restore noticed?

Runs small jobs on real devices without a database and compares, for every rank and iteration, the freed
bytes and the pinned host bytes with the prediction, and the checksums.

    python -m benchmarks.gpu_bytes [--ranks 1] [--hidden 4096] [--layers 8] [--only TEXT]

Prints a line a case; exit status 1 if any case is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.spec.axes import AXES, AxisValue
from orchestrator.spec.bytes import Prediction, predict_values
from orchestrator.spec.jobfile import JobFile, RankPlacement

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE_BYTES, TOLERANCE_SHARE = 1 << 20, 0.001

Records = list[dict[str, Any]]
"""What one rank left in its spool."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job, and the failure kind that is right for it (None: it must succeed)."""

    name: str
    axes: Mapping[str, AxisValue]
    ds: Mapping[str, object] = field(default_factory=dict)
    expected_failure: str | None = None
    may_be_unsupported: bool = False


KEEP_LP_PARAMS = "optim_states+hp_params+lp_grads+contiguous_grad_buffer"

CASES = (
    Case("zero3 bf16 pinned", {"non_blocking": True, "instrumented": 1}),
    Case("zero3 bf16 gc_freeze", {"non_blocking": True, "gc_freeze": True}),
    Case("zero3 bf16 pageable", {"pin_memory": False}),
    Case("zero3 bf16 pageable non_blocking", {"pin_memory": False, "non_blocking": True}),
    Case("zero3 fp16", {"dtype": "float16"}),
    Case("zero3 fp32", {"dtype": "float32"}),
    Case("zero3 keep lp_params", {"included_state": KEEP_LP_PARAMS}),
    Case("zero3 optim only", {"included_state": "optim_states"}),
    Case("zero3 grads fp32, small bucket and sub-groups", {}, {
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": {"reduce_bucket_size": 1_000_000, "sub_group_size": 30_000_000},
    }),
    Case("zero3 groups", {"param_groups": 3}),
    Case("zero3 frozen", {"frozen_fraction": 0.5, "included_state": "optim_states+hp_params+lp_grads"}),
    Case("zero3 transformer", {"model": "transformer", "hidden_dim": 1024, "nlayers": 4}),
    Case("zero2 bf16", {"zero_stage": 2}),
    Case("zero2 bf16 pageable non_blocking", {"zero_stage": 2, "pin_memory": False, "non_blocking": True}),
    Case("zero1 fp32 torch_adam", {"zero_stage": 1, "dtype": "float32", "optimizer": "torch_adam"}),
    Case("hold 1 GB", {"hold_bytes": 1_000_000_000, "dwell_s": 0.2}),
    Case("exact pinning", {"pin_backend": "exact"}, may_be_unsupported=True),  # torch 2.11 refuses it.
    Case("stale restore", {"pin_memory_then": False}, expected_failure="states_changed"),
    Case("frozen lp_params", {"frozen_fraction": 0.5}, expected_failure="exception"),
)  # fmt: skip

ALLOCATOR = {"exact": "pinned_max_round_threshold_mb:1"}


def device_uuids(count: int) -> list[str]:
    """UUIDs of the first devices, asked of nvidia-smi: this process must not touch CUDA."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    if len(found) < count:
        raise SystemExit(f"{count} GPUs asked for, {len(found)} there")
    return found[:count]


def run_case(case: Case, axes: dict[str, AxisValue], uuids: list[str], folder: Path) -> list[Records]:
    """Run the case's ranks; the records of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = len(uuids)
    job = JobFile(
        attempt_uid="gpu-bytes", attempt_id=0, job_id=0, sweep="gpu-bytes",
        parameters=axes, ds=case.ds, env={}, world_size=ranks, num_nodes=1,
        node_rank=0, local_size=ranks, master_addr="127.0.0.1",
        port=port, accelerator="cuda", launch_mode="spawn", commit=False, db_url=None, run_dir=str(folder),
        spool_dir=str(folder / "spool"), start_timeout_s=600.0, visible_devices=",".join(uuids),
        ranks=tuple(RankPlacement(rank, rank, rank, uuid) for rank, uuid in enumerate(uuids)),
    )  # fmt: skip
    folder.mkdir(parents=True)
    job.write(folder / "job.json")
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DS_ACCELERATOR": "cuda",
    }
    if axes["pin_backend"] in ALLOCATOR:
        env["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATOR[str(axes["pin_backend"])]
    processes = []
    for rank in range(ranks):
        command = [
            sys.executable,
            "-m",
            "worker.rank",
            "--job",
            str(folder / "job.json"),
            "--rank",
            str(rank),
        ]
        with (folder / f"rank{rank}.log").open("w") as log:
            processes.append(subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log))
    for process in processes:
        try:
            process.wait(300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    spools = [folder / "spool" / f"rank{rank}.jsonl" for rank in range(ranks)]
    return [[json.loads(line) for line in spool.read_text().splitlines()] for spool in spools]


def judge(case: Case, records: Records, prediction: Prediction) -> list[str]:
    """What is wrong with one rank's records; empty if nothing."""
    errors = [record for record in records if record["kind"] == "error"]
    kinds = [error["failure_kind"] or error["status"] for error in errors]
    if case.expected_failure:
        return [] if case.expected_failure in kinds else [f"expected {case.expected_failure}, got {kinds}"]
    if case.may_be_unsupported and kinds == ["unsupported"]:
        return []
    wrong = [f"{error['failure_kind']}: {error['message']}" for error in errors]
    if not any(record["kind"] == "final" for record in records):
        wrong.append("no final record")
    rows = [record for record in records if record["kind"] == "iteration"]
    for row in rows:
        if row["bytes_match"] is not True:
            difference = row["freed_bytes"] - row["predicted_freed_bytes"]
            wrong.append(f"iteration {row['iteration']}: freed {row['freed_bytes']}, {difference:+} bytes")
        if row["reserved_after_bytes"] is None or not row["devices_ok"] or not row["states_intact"]:
            wrong.append(f"iteration {row['iteration']}: devices or checksums")
    pinned = [row["pinned_bytes"] for row in rows if row["pinned_bytes"] is not None]
    expected = prediction.pinned_bytes or 0
    if pinned and abs(max(pinned) - expected) > max(TOLERANCE_BYTES, TOLERANCE_SHARE * expected):
        wrong.append(f"pinned {max(pinned)}, predicted {expected}")
    copied = {row["copied_bytes"] for row in rows}
    if rows and copied != {prediction.copied_bytes}:
        wrong.append(f"copied {copied}, predicted {prediction.copied_bytes}")
    return wrong


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_bytes")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    uuids = device_uuids(options.ranks)
    failed = 0
    root = Path(tempfile.mkdtemp(prefix="gpu-bytes-"))
    chosen = [case for case in CASES if options.only in case.name]
    for number, case in enumerate(chosen):
        axes: dict[str, AxisValue] = {axis.name: axis.default for axis in AXES}
        axes.update(hidden_dim=options.hidden, nlayers=options.layers, iteration=3, warmup=1)
        axes.update(case.axes, num_gpus=options.ranks)
        prediction = predict_values(axes, case.ds)
        records = run_case(case, axes, uuids, root / str(number))
        wrong = [
            f"rank {rank}: {what}"
            for rank, own in enumerate(records)
            for what in judge(case, own, prediction)
        ]
        failed += bool(wrong)
        rows = [row for row in records[0] if row["kind"] == "iteration"]
        figures = ""
        if rows:
            row = rows[-1]
            peak = max(each["peak_step_bytes"] or 0 for each in rows)
            figures = (
                f"offload {row['offload_s']:.3f} s, reload {row['reload_s']:.3f} s, "
                f"freed {row['freed_bytes']}, pinned {row['pinned_bytes']}, "
                f"step peak {peak} of {prediction.gpu_bytes} predicted"
            )
        print(f"{'WRONG' if wrong else 'ok':5}  {case.name}: {figures}", flush=True)
        for line in wrong:
            print(f"       {line}", flush=True)
    print(f"logs in {root}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
