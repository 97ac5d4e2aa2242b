"""The example's own interface."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.ranks import ROOT, environment, free_port

NUMBER = r"\d+\.\d+(e-\d+)?"


def run(arguments: list[str], folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(command or (sys.executable, "-m", "worker")), *arguments],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("iteration", "warmup"), [(5, 5), (3, 7)])
def test_example_warmup_not_less_than_iteration_is_exit_2(
    iteration: int, warmup: int, tmp_path: Path
) -> None:
    done = run(["--iteration", str(iteration), "--warmup", str(warmup)], tmp_path)
    assert done.returncode == 2
    assert f"--warmup {warmup} leaves nothing of --iteration {iteration}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_example_wrong_option_is_found_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys, runpy\n"
        "sys.argv = ['worker', '--warmup', '99']\n"
        "try: runpy.run_module('worker', run_name='__main__')\n"
        "except SystemExit as end: print(end.code, sorted({'torch', 'deepspeed'} & set(sys.modules)))\n"
    )
    assert run([code], tmp_path, sys.executable, "-c").stdout == "2 []\n"


def test_example_import_of_the_package_is_light(tmp_path: Path) -> None:
    code = "import sys, worker; print(worker.__all__, 'torch' in sys.modules)"
    done = run([code], tmp_path, sys.executable, "-c")
    assert done.stdout.endswith("False\n"), done.stderr


@pytest.mark.deepspeed
def test_example_fp16_on_a_cpu_is_one_line(tmp_path: Path) -> None:
    done = run(["--dtype", "torch.float16"], tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--dtype torch.float16: fp16 does not run on a CPU")
    assert "Traceback" not in done.stderr


@pytest.mark.deepspeed
@pytest.mark.parametrize(
    "command", [("-m", "worker"), (str(ROOT / "worker" / "__main__.py"),)], ids=["module", "file"]
)
def test_example_alone_prints_its_lines_and_appends_its_row(command: tuple[str, ...], tmp_path: Path) -> None:
    arguments = "--nlayers 2 --hidden_dim 32 --iteration 3 --warmup 1 --pin_memory --included_state hp_params"
    done = run(arguments.split(), tmp_path, sys.executable, *command)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("Memory usage", "Summary"))]
    assert len(lines) == 4
    assert re.fullmatch(
        r"Memory usage \(0\): include=\[<OffloadStateTypeEnum.hp_params: 'hp_params'>\], pin_memory=True, "
        r"non_blocking=False alloc_before_offload=\d+ alloc_after_offload=\d+",
        lines[0],
    )
    assert re.fullmatch(
        rf"Summary: pin_memory=True non_blocking=False offload={NUMBER} load={NUMBER}", lines[3]
    )
    assert re.fullmatch(rf"1,0,{NUMBER},{NUMBER}\n", (tmp_path / "offload_states.log").read_text())


@pytest.mark.deepspeed
def test_example_under_the_deepspeed_command_runs_two_ranks(tmp_path: Path) -> None:
    launcher = Path(sys.executable).with_name("deepspeed")
    arguments = "--num_gpus 2 --module worker --nlayers 1 --hidden_dim 32 --iteration 2 --warmup 1"
    shared_before = set(os.listdir("/dev/shm"))
    # The launcher starts `python`: the one of this environment.
    env = {**environment(), "PATH": f"{launcher.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(launcher), *arguments.split()],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Summary: ") == 1
    assert len((tmp_path / "offload_states.log").read_text().splitlines()) == 1
    left = set(os.listdir("/dev/shm")) - shared_before
    assert not [name for name in left if name.startswith("deepspeed_") and "_29500_" in name]


SCRIPT = """
import torch, deepspeed
from worker import SimpleModel, run_model

config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
          "optimizer": {"type": "Adam", "params": {"lr": 1e-6}}, "zero_optimization": {"stage": 3}}
with deepspeed.zero.Init(config_dict_or_path=config):
    model = SimpleModel(32)
run_model(model, config, 32, torch.bfloat16, include=None, pin_memory=False, non_blocking=True,
          iteration=2, warmup=1)
"""


@pytest.mark.deepspeed
@pytest.mark.parametrize("launcher", [False, True], ids=["plain python", "deepspeed command"])
def test_example_run_model_in_a_script_of_ones_own_leaves_nothing_behind(
    launcher: bool, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(SCRIPT)
    command = Path(sys.executable).with_name("deepspeed")
    # A port of its own tells this run's shared memory from that of others.
    port = str(free_port())
    begin = [str(command), "--num_gpus", "1", "--master_port", port] if launcher else [sys.executable]
    env = {**environment(), "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*begin, "own.py"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"0,1,{NUMBER},{NUMBER}\n", (tmp_path / "offload_states.log").read_text())
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("deepspeed_") and port in name]
