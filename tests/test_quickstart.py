"""The first hour: the quickstart on this host, then every reading command that the docs show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import COMMAND_LINES

pytestmark = pytest.mark.deepspeed

READING = ("report", "sql", "show", "logs", "status", "repro")


def orch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``orch ARGUMENTS`` in a folder, as a person would give it, on the CPU."""
    environ = {
        **os.environ,
        "DS_ACCELERATOR": "cpu",
        "ORCH_STATE_DIR": str(cwd / "state"),  # timed sections of another orch are not waited for
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the quickstart has run into ``orch.db``."""
    place = tmp_path_factory.mktemp("quickstart")
    sweep = orch("sweep", "quickstart", cwd=place)
    assert sweep.returncode == 0, sweep.stdout + sweep.stderr
    assert "quickstart: 8 jobs (8 ok)" in sweep.stdout
    return place


def test_quickstart_runs_every_job_once(folder: Path) -> None:
    status = orch("status", "--json", cwd=folder)
    assert json.loads(status.stdout)["counts"]["ok"] == 8
    rows = orch("sql", "--json", "select count(*) as n from iteration", cwd=folder)
    assert json.loads(rows.stdout) == [{"n": 8 * 8}]


def test_quickstart_given_again_runs_nothing(folder: Path) -> None:
    again = orch("sweep", "quickstart", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert json.loads(orch("sql", "--json", "select count(*) as n from attempt", cwd=folder).stdout) == [
        {"n": 8}
    ]


@pytest.mark.parametrize("words", sorted({w for _, w in COMMAND_LINES if w[0] in READING}), ids=" ".join)
def test_documented_reading_command_runs_on_the_quickstart(folder: Path, words: tuple[str, ...]) -> None:
    # The documents speak of the reader's own sweep, full; the one that was run here stands for it.
    result = orch(*("quickstart" if word == "full" else word for word in words), cwd=folder)
    assert result.returncode == 0, result.stderr
