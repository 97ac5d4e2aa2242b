"""``orch doctor`` and ``orch repro`` at the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import main
from orchestrator.spec.load import load_plan
from orchestrator.store import open_store


@pytest.fixture
def results(tmp_path: Path) -> str:
    """A database that holds the quickstart sweep, nothing of it run."""
    path = str(tmp_path / "results.db")
    with open_store(path, create=True) as store:
        store.put_sweep(load_plan("quickstart"), {})
    return path


def test_doctor_json_is_a_list_of_findings(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--json", "--db", str(tmp_path / "none.db")])
    findings = json.loads(result.stdout)
    assert {tuple(finding) for finding in findings} == {("check", "severity", "message", "evidence", "mend")}
    is_bad = any(finding["severity"] == "error" for finding in findings)
    assert result.exit_code == (1 if is_bad else 0)


def test_doctor_brief_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--brief", "--db", str(tmp_path / "none.db")])
    assert result.stdout.startswith("orch doctor: ")
    assert result.stdout.count("\n") == 1


def test_doctor_exits_1_and_fix_mends_a_stale_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "fused_adam" / "lock"
    lock.parent.mkdir()
    lock.touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    command = ["doctor", "--db", str(tmp_path / "none.db")]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == 1
    assert "mend: orch doctor --fix stale-lock" in found.stdout
    mended = CliRunner().invoke(main, [*command, "--fix", "stale-lock"])
    assert f"removed {lock}" in mended.stderr
    assert "stale build lock" not in mended.stdout
    assert not lock.exists()


def test_repro_prints_a_valid_script_for_each_way_to_name_a_job(results: str, tmp_path: Path) -> None:
    with open_store(results, readonly=True) as store:
        job = store.find_job("1")
    scripts = {
        CliRunner().invoke(main, ["repro", name, "--accelerator", "cpu", "--db", results]).stdout
        for name in (str(job.job_id), job.label, job.uid[:12])
    }
    (script,) = scripts
    assert f"# job {job.label} without orch" in script
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_repro_writes_to_a_file(results: str, tmp_path: Path) -> None:
    out = tmp_path / "repro.sh"
    result = CliRunner().invoke(main, ["repro", "1", "--db", results, "-o", str(out)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert out.read_text().startswith("#!/bin/sh\n")


def test_repro_of_an_unknown_job_is_one_line(results: str) -> None:
    result = CliRunner().invoke(main, ["repro", "nojob", "--db", results])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_repro_of_an_unknown_sweep_says_which_there_are(results: str) -> None:
    result = CliRunner().invoke(main, ["repro", "1", "--sweep", "nope", "--db", results])
    assert result.exit_code == 2
    assert "there is no sweep 'nope' in this database; there are: quickstart" in result.stderr
