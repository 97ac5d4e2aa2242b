"""A host that no job of the built-in worker can run on: refused, with what mends it and nothing written."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator.doctor.finding import Settings, Severity
from orchestrator.doctor.linking import check_linking
from orchestrator.doctor.software import check_build
from tests.engines.environments import HEAVY, make_environment
from tests.engines.running import ROOT

INSTALL = "pip install 'offload-orch[worker]'"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment without torch and deepspeed."""
    return make_environment(tmp_path_factory.mktemp("bare"), without=HEAVY)


def run(python: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """``python -m ...`` away from the checkout."""
    folder.mkdir(exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "ORCH_DB"},
        "PYTHONPATH": str(ROOT),
        "ORCH_STATE_DIR": str(folder.parent / "state"),
        "DS_ACCELERATOR": "cpu",
    }
    return subprocess.run(
        [str(python), "-m", *map(str, arguments)], cwd=folder, env=environment, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--launcher", "spawn"], ["--launcher", "deepspeed"]])
def test_bare_install_refuses_the_built_in_worker_and_writes_nothing(
    bare: Path, tmp_path: Path, options: list[str]
) -> None:
    place = tmp_path / "place"
    done = run(bare, place, "orchestrator", "sweep", "quickstart", *options)
    assert done.returncode == 2
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("orch: ")]
    assert "torch and deepspeed not installed" in told
    assert told.endswith(INSTALL)
    assert list(place.iterdir()) == []
    assert not (tmp_path / "state").exists()


def test_bare_install_is_told_the_same_by_doctor(bare: Path, tmp_path: Path) -> None:
    done = run(bare, tmp_path / "place", "orchestrator", "doctor", "--json")
    (finding,) = [one for one in json.loads(done.stdout) if one["check"] == "versions"]
    assert (done.returncode, finding["severity"], finding["mend"]) == (1, "error", INSTALL)


def test_bare_install_runs_a_worker_that_needs_no_torch(bare: Path, tmp_path: Path) -> None:
    spec = tmp_path / "noop.yaml"
    spec.write_text("name: noop\nlauncher: {name: fork, worker: 'benchmarks.noop_worker:main'}\n")
    done = run(bare, tmp_path / "place", "orchestrator", "sweep", spec)
    assert done.returncode == 0, done.stderr


def test_bare_install_plans_what_it_cannot_run(bare: Path, tmp_path: Path) -> None:
    assert run(bare, tmp_path / "place", "orchestrator", "plan", "quickstart").returncode == 0


def test_bare_install_answers_the_example_in_one_line(bare: Path, tmp_path: Path) -> None:
    done = run(bare, tmp_path / "place", "worker", "--nlayers", 2)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"python -m worker: torch and deepspeed not installed; {INSTALL}\n"


@needs_torch
@pytest.mark.parametrize("name", ["with blank", "it's", "a&b"])
def test_torch_in_a_folder_that_the_shell_splits_is_refused_with_doctors_words(
    tmp_path: Path, name: str
) -> None:
    python = make_environment(tmp_path / name / "venv")
    place = tmp_path / "place"
    done = run(python, place, "orchestrator", "sweep", "quickstart")
    assert done.returncode == 2
    assert list(place.iterdir()) == []
    examined = json.loads(run(python, place, "orchestrator", "doctor", "--json").stdout)
    (finding,) = [one for one in examined if one["check"] == "build"]
    assert finding["severity"] == "error"
    assert str(tmp_path / name / "venv") in finding["evidence"]
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("orch: ")]
    assert all(finding[part] in told for part in ("message", "evidence", "mend"))


@needs_torch
def test_jobs_that_need_no_op_are_not_refused_for_the_folder_of_torch(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "with blank" / "venv")
    spec = tmp_path / "own.yaml"
    spec.write_text("name: own\ndefaults: {optimizer: torch_adam, zero_stage: 1}\n")
    script = (
        "import sys; from pathlib import Path; from orchestrator.engines.unfit import refuse_unfit_host;"
        " from orchestrator.spec.load import load_plan; refuse_unfit_host(load_plan(Path(sys.argv[1])))"
    )
    done = subprocess.run([python, "-c", script, spec], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@needs_torch
def test_cuda_in_a_folder_with_a_blank_is_an_error_where_it_is_used(tmp_path: Path) -> None:
    environ = {"CUDA_HOME": "/opt/my cuda"}
    (finding,) = check_linking(environ, uses_cuda=True)
    assert (finding.check, finding.severity) == ("build", Severity.ERROR)
    assert "/opt/my cuda" in finding.evidence
    assert list(check_linking(environ)) == []


@needs_torch
def test_blank_in_the_folder_where_ops_are_built_does_no_harm(tmp_path: Path) -> None:
    settings = Settings("orch.db", environ={**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path / "a b")})
    assert [one.severity for one in check_build(settings, "no driver") if one.check == "build"] == [
        Severity.OK
    ]
