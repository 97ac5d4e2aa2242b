"""A sweep of real DeepSpeed jobs where a build was killed: torch would wait for its lock for ever."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.doctor.jitlocks import extensions_dirs
from tests.engines.running import Workplace, wait_until

pytestmark = pytest.mark.deepspeed

BUILDER = """
import sys, time
from torch.utils.file_baton import FileBaton
for lock in sys.argv[1:]:
    assert FileBaton(lock).try_acquire()
print("building", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("launcher", ["fork", "spawn"])
def test_b13_lock_of_a_killed_build_is_removed_before_anything_is_timed(
    place: Workplace, tmp_path: Path, launcher: str
) -> None:
    built = [folder for folder in extensions_dirs(os.environ) if any(folder.glob("*/*.so"))]
    if not built:
        pytest.skip("no op has been built yet")
    extensions = tmp_path / "extensions"
    shutil.copytree(built[0], extensions, ignore=shutil.ignore_patterns("lock"))
    locks = [op / "lock" for op in extensions.iterdir() if op.is_dir()]
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, *map(str, locks)], stdout=subprocess.PIPE)
    assert builder.stdout is not None
    wait_until(builder.stdout.readline, "the build has begun")
    os.kill(builder.pid, signal.SIGKILL)
    builder.wait()
    builder.stdout.close()
    assert locks and all(lock.exists() for lock in locks)
    place.environment |= {"TORCH_EXTENSIONS_DIR": str(extensions), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    spec = place.folder / "real.yaml"
    spec.write_text(
        "name: real\nlimits: {start_timeout_s: 300}\n"
        "defaults: {hidden_dim: 64, nlayers: 1, iteration: 2, warmup: 1, dtype: float32}\n"
    )
    done = place.sweep(spec, "--launcher", launcher, "--no-probe", timeout_s=500)
    assert done.returncode == 0, done.stderr
    assert place.query("select status, launch_mode from attempt") == [
        {"status": "ok", "launch_mode": launcher}
    ]
    used = [lock for lock in locks if lock.exists()]
    assert len(used) < len(locks), "what a job needs is free; a lock of an op that nobody uses harms nobody"
    place.wait_for_no_survivors()
