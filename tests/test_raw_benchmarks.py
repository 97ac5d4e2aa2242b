"""The benchmarks of the raw device: without one they say so and measure nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["link_sizes", "pinning_ways"])
def test_without_a_gpu_nothing_is_measured_and_nothing_saved(name: str, tmp_path: Path) -> None:
    saved = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--save", str(saved)],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{name}: there is no GPU here")
    assert not saved.exists()
