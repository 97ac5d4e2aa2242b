"""``orch repro``: what it prints runs without orch, and is the same job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.launch.repro import Reproduction, reproduce
from orchestrator.spec.axes import AxisValue
from orchestrator.spec.cell import make_cell

SMALL: dict[str, AxisValue] = {"hidden_dim": 64, "iteration": 3, "warmup": 1}


def reproduction(**axes: AxisValue) -> Reproduction:
    return reproduce(make_cell({**SMALL, **axes}), "abc123/1", "cpu")


def test_repro_config_is_the_jobs_and_the_job_is_resolved() -> None:
    found = reproduction(zero_stage=2, dtype="float32", included_state="optim_states+hp_params")
    config = json.loads(found.files["ds_config.json"])
    assert config["zero_optimization"]["stage"] == 2
    job = json.loads(found.files["job.json"])
    assert job["included_state"] == ["hp_params", "optim_states"]
    assert (job["pin_memory"], job["pin_memory_then"]) == (True, True)


def test_repro_script_compiles_and_imports_nothing_of_orch() -> None:
    script = reproduction().files["repro.py"]
    compile(script, "repro.py", "exec")
    assert not re.search(r"^\s*(from|import) (worker|orchestrator)", script, re.MULTILINE)
    assert "class SimpleModel" in script
    assert "class Transformer" in script


def test_repro_command_carries_environment_and_ranks() -> None:
    found = reproduce(
        make_cell({**SMALL, "num_gpus": 2, "pin_backend": "host_register:8"}, env={"NCCL_DEBUG": "INFO x"}),
        "abc123/1",
        "cuda",
    )
    assert "DS_ACCELERATOR=cuda" in found.command
    assert "NCCL_DEBUG='INFO x'" in found.command
    assert "pinned_num_register_threads:8" in found.command
    assert "--nproc_per_node=2" in found.command


def test_repro_says_what_it_leaves_out() -> None:
    assert "left out: contention = 2" in reproduction(contention=2).notes
    assert reproduction().notes == ("job abc123/1 without orch: needs torch and deepspeed alone",)


def test_repro_shell_script_is_valid(tmp_path: Path) -> None:
    script = tmp_path / "repro.sh"
    script.write_text(reproduction().as_shell())
    subprocess.run(["sh", "-n", str(script)], check=True)


@pytest.mark.deepspeed
@pytest.mark.parametrize(
    "axes",
    [
        {},
        {"num_gpus": 2, "zero_stage": 2, "param_groups": 2, "nlayers": 4, "frozen_fraction": 0.5},
        {"model": "transformer", "vocab_size": 128, "seq_len": 8, "num_heads": 2, "dtype": "float32"},
    ],
    ids=["zero3", "zero2-two-ranks-frozen", "transformer"],
)
def test_repro_printed_script_really_runs(tmp_path: Path, axes: dict[str, AxisValue]) -> None:
    script = reproduction(**axes).as_shell()
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    run = subprocess.run(
        ["sh"],
        input=script,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        env=environ,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith(("iteration", "median"))]
    assert len(lines) == 4
    assert re.fullmatch(r"median of 2: offload [0-9.]+ s, reload [0-9.]+ s", lines[-1])
