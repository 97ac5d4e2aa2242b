"""What a fork server has before its first fork, and how it learns what is missing."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.doctor.jitlocks import extensions_dirs
from worker.learned import Learned, importable_since
from worker.preload_ops import OpsBuild

ROOT = Path(__file__).parents[2]
OPS = """
import torch, deepspeed
from worker.preload_ops import OpsBuild
from worker.threads import thread_count
modules = OpsBuild().load()
from deepspeed.ops.op_builder.builder import OpBuilder
assert {"deepspeed_shm_comm", "fused_adam"} <= set(OpBuilder._loaded_ops), OpBuilder._loaded_ops
assert "torch.utils.cpp_extension" in modules
assert thread_count() == 1
assert vars(deepspeed.ops)["__compatible_ops__"]["deepspeed_shm_comm"]
"""


@pytest.mark.deepspeed
@pytest.mark.timeout(1200)
def test_ops_are_loaded_and_no_rank_needs_a_compiler_any_more() -> None:
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", OPS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_killed_build_leaves_nothing_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.preload_ops._build_and_tell", lambda _end: signal.pause())
    build = OpsBuild()
    os.kill(build._pid, signal.SIGKILL)
    assert build.load() == []
    with pytest.raises(ChildProcessError):
        os.waitpid(build._pid, os.WNOHANG)


def test_reported_modules_are_imported_and_known_to_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever threads the tests before this one have left: a server has one.
    monkeypatch.setattr("worker.learned.thread_count", lambda: 1)
    (tmp_path / "report").write_text(json.dumps(["this", "no.such.module"]))
    sys.modules.pop("this", None)
    learned = Learned(tmp_path / "modules.json")
    assert learned.wants_more
    assert learned.take(str(tmp_path / "report")) is None
    assert "this" in sys.modules
    del sys.modules["this"]
    Learned(tmp_path / "modules.json").import_known()
    assert "this" in sys.modules


def test_what_was_imported_since_is_told_without_what_no_rank_may_hold() -> None:
    sys.modules.pop("this", None)
    before = set(sys.modules) - {"sqlalchemy"}
    importlib.import_module("this")
    importlib.import_module("sqlalchemy")
    assert "this" in importable_since(before)
    assert "sqlalchemy" not in importable_since(before)


BUILDS = """
import torch, deepspeed
from worker.preload_ops import OpsBuild
OpsBuild(lambda: print("builds", flush=True)).load()
"""


@pytest.mark.deepspeed
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("missing", [0, 1])
def test_build_of_ops_is_told_once_and_only_where_one_is_missing(missing: int, tmp_path: Path) -> None:
    built = [folder for folder in extensions_dirs(os.environ) if any(folder.glob("*/*.so"))]
    if not built:
        pytest.skip("no op has been built yet")
    extensions = tmp_path / "extensions"
    shutil.copytree(built[0], extensions, ignore=shutil.ignore_patterns("lock"))
    for library in sorted(extensions.glob("*/*.so"))[:missing]:
        library.unlink()
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", BUILDS], env=environment | {"TORCH_EXTENSIONS_DIR": str(extensions)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines().count("builds") == missing, done.stderr
