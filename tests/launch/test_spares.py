"""Spare processes become what they are told, as clean as a new interpreter, or make room for one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.running import wait_until

ROOT = Path(__file__).resolve().parents[2]
LOOKS = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "environment": dict(os.environ),
    "leads": os.getsid(0) == os.getpid(), "input": os.readlink("/proc/self/fd/0"),
    "loaded": [name for name in sys.modules if name.startswith(("orchestrator.", "sqlalchemy"))],
}))
sys.exit(7)
"""
STARTS = """
import json, os, sys
from orchestrator.launch.spares import Spares
spares = Spares(1)
output = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
environment = {"PYTHONPATH": os.path.dirname(sys.argv[2]), "PYTHONUNBUFFERED": "1", "ONE": "1"}
command = [sys.executable, "-P", "-m", "looks", "--rank", "3"]
if sys.argv[1] == "killed":
    os.kill(spares._waiting[0][0], 9)
    os.waitid(os.P_PID, spares._waiting[0][0], os.WEXITED | os.WNOWAIT)
if sys.argv[1] == "other":
    command = ["sleep", "1000"]
if sys.argv[1] == "unused":
    print(spares._waiting[0][0], flush=True)
    os.kill(os.getpid(), 9)
pid = spares.become(command, environment, os.path.dirname(sys.argv[2]), output)
print(pid is not None, spares.become(command, environment, "/", output))
spares.close()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def starts(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    """A process with one spare."""
    (folder / "looks.py").write_text(LOOKS)
    return subprocess.run(
        [sys.executable, "-c", STARTS, what, str(folder / "output")], cwd=ROOT,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_spare_becomes_the_command_in_its_environment_and_holds_nothing_of_orch(tmp_path: Path) -> None:
    done = starts(tmp_path, "used")
    assert done.stdout.splitlines() == ["True None", "7"], done.stderr
    seen = json.loads((tmp_path / "output").read_text())
    assert seen["arguments"] == ["--rank", "3"]
    assert seen["name"] == "__main__"
    assert seen["folder"] == str(tmp_path)
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1", "ONE": "1"}
    assert seen["environment"] == environment
    assert seen["leads"]
    assert seen["input"] == os.devnull
    assert seen["loaded"] == ["orchestrator.launch", "orchestrator.launch.spares"]


@pytest.mark.parametrize(("what", "status"), [("killed", "-9"), ("other", "0")])
def test_without_a_fit_spare_a_new_process_is_asked_for(tmp_path: Path, what: str, status: str) -> None:
    done = starts(tmp_path, what)
    assert done.stdout.splitlines() == ["False None", status], done.stderr


def test_spare_leaves_with_its_parent(tmp_path: Path) -> None:
    done = starts(tmp_path, "unused")
    assert done.returncode == -signal.SIGKILL
    state = Path(f"/proc/{int(done.stdout)}/stat")
    wait_until(
        lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", "it leaves"
    )
