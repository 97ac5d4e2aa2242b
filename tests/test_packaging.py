"""The wheel alone, in a bare environment: it plans, reports and queries without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, without anything of this environment."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ORCH_DB", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git tracks, so that nothing is built into the checkout."""
    source = tmp_path_factory.mktemp("source")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    ).stdout.decode()
    if not names:
        pytest.skip("not a git checkout")
    for name in filter(None, names.split("\0")):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    build = run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", out, source, cwd=out
    )
    assert build.returncode == 0, build.stdout + build.stderr
    (path,) = out.glob("offload_orch-*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of a fresh environment that holds the wheel and what it requires, no extras."""
    folder = tmp_path_factory.mktemp("bare")
    assert run(sys.executable, "-m", "venv", folder, cwd=folder).returncode == 0
    install = run(folder / "bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    assert install.returncode == 0, install.stdout + install.stderr
    return folder / "bin"


def test_wheel_holds_schema_and_sweeps_and_nothing_foreign(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "orchestrator/store/schema.sql" in names
    shipped = {f"orchestrator/sweeps/{path.name}" for path in (ROOT / "sweeps").glob("*.yaml")}
    assert shipped
    assert shipped <= names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"orchestrator", "worker"}
    missing = {
        path.relative_to(ROOT).as_posix()
        for package in ("orchestrator", "worker")
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".sql", ".html", ".j2", ".css", ".js", ".json") and path.is_file()
    } - names
    assert missing == set()


def test_bare_install_has_no_torch(bare: Path, tmp_path: Path) -> None:
    for package in ("torch", "deepspeed", "ray", "plotly"):
        assert run(bare / "python", "-c", f"import {package}", cwd=tmp_path).returncode != 0


def test_bare_install_plans_a_shipped_sweep_by_its_name(bare: Path, tmp_path: Path) -> None:
    plan = run(bare / "orch", "plan", "quickstart", "--json", cwd=tmp_path)
    assert plan.returncode == 0, plan.stderr
    document = json.loads(plan.stdout)
    assert document["count"] == len(document["jobs"]) > 0
    assert "sweeps/quickstart.yaml" in plan.stderr


def test_bare_install_reports_and_queries(bare: Path, tmp_path: Path) -> None:
    make = (
        "from orchestrator.store import open_store\n"
        "from orchestrator.spec.load import load_plan\n"
        "from orchestrator.spec.shipped import shipped_sweeps\n"
        "plan = load_plan(shipped_sweeps()['quickstart'])\n"
        "with open_store('results.db', create=True) as store: store.put_sweep(plan, {})\n"
    )
    made = run(bare / "python", "-c", make, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    report = run(bare / "orch", "report", "--db", "results.db", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    query = run(
        bare / "orch", "sql", "--json", "select count(*) as n from job", "--db", "results.db", cwd=tmp_path
    )
    assert query.returncode == 0, query.stderr
    (row,) = json.loads(query.stdout)
    assert row["n"] > 0
    assert run(bare / "orch", "db", "check", "--db", "results.db", cwd=tmp_path).returncode == 0


def test_bare_install_says_what_a_job_needs(bare: Path, tmp_path: Path) -> None:
    doctor = run(bare / "orch", "doctor", "--json", cwd=tmp_path)
    assert doctor.returncode == 1, doctor.stderr
    errors = [finding for finding in json.loads(doctor.stdout) if finding["severity"] == "error"]
    assert "pip install 'offload-orch[worker]'" in [finding["mend"] for finding in errors]
