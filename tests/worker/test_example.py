"""The example's own interface."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.ranks import ROOT, environment

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
