"""What doctor says about locked and shared memory, under limits that are really set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.doctor.devices import Driver
from orchestrator.doctor.finding import Finding, Settings, Severity
from orchestrator.doctor.memory import check_memory
from tests.doctor.test_devices import driver

# A limit can be lowered and, without privileges, not raised again: in a process of its own.
_UNDER_A_LIMIT = """
import json, resource, sys
from dataclasses import asdict
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
from orchestrator.doctor.finding import Settings
from orchestrator.doctor.memory import check_memory
from tests.doctor.test_devices import driver
host = driver() if sys.argv[1] == "gpu" else "no NVIDIA driver"
print(json.dumps([asdict(found) for found in check_memory(Settings("orch.db", environ={}), host)]))
"""


def under_a_low_limit(host: str) -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, "-c", _UNDER_A_LIMIT, host], capture_output=True, text=True, check=True, timeout=60,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    (found,) = [finding for finding in json.loads(run.stdout) if finding["check"] == "locked-memory"]
    assert isinstance(found, dict)
    return found


def test_a_low_limit_of_locked_memory_is_a_warning_on_a_gpu_host_with_its_mend() -> None:
    found = under_a_low_limit("gpu")
    assert found["severity"] == "warn"
    assert found["message"].startswith("ulimit -l is 0.1 MB")
    assert found["evidence"] == "ulimit -l"
    assert "memlock" in found["mend"]


def test_a_low_limit_of_locked_memory_is_no_matter_on_a_cpu() -> None:
    assert under_a_low_limit("cpu")["severity"] == "ok"


def shared_memory(path: Path, host: Driver | str) -> list[Finding]:
    found = check_memory(Settings("orch.db", environ={}, shared_memory=path), host)
    return [finding for finding in found if finding.check == "shared-memory"]


def test_missing_shared_memory_is_a_warning(tmp_path: Path) -> None:
    (found,) = shared_memory(tmp_path / "shm", driver())
    assert found.severity is Severity.WARN
    assert "jobs of several ranks fail" in found.message


@pytest.mark.parametrize("host", [driver(), "no NVIDIA driver"])
def test_shared_memory_of_any_size_is_enough_for_one_device(tmp_path: Path, host: Driver | str) -> None:
    assert shared_memory(tmp_path, host) == []
