"""``orch plan``, ``orch schema`` and ``orch init`` as a shell sees them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from orchestrator.spec.command import cell_overrides, launch_line
from orchestrator.spec.load import load_plan, parse_plan
from worker.__main__ import parse

SWEEP = """\
name: small
defaults: {hidden_dim: 64, iteration: 4, warmup: 1}
matrix:
  pin_memory: [true, false]
  included_state: [all, keep_lp_params]
exclude: [{nlayers: 7}]
cells: [{num_gpus: 3}]
repeats: 2
engine: {name: local, slots: 2}
"""

TABLE = """\
small: 10 jobs: 5 cells × 2 · CPU, 2 slots · launcher fork
cell    pin memory  included state  num gpus  GPU bytes  pinned host bytes  fits
"""


def orch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run orch in ``cwd`` on a host without devices."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=60,
        env={
            **os.environ,
            "DS_ACCELERATOR": "cpu",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "COLUMNS": "200",
        },
    )


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SWEEP)
    return path


def test_plan_shows_cells_bytes_and_what_does_not_fit(sweep: Path) -> None:
    run = orch("plan", "small.yaml", "--set", "micro_batch=2", cwd=sweep.parent)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[:2] == TABLE.splitlines()
    assert sum(" yes" in line for line in lines) >= 4
    assert "2 jobs will be skipped: num_gpus 3 > 2 slots (--slots 3 gives more)" in lines
    assert lines[-1] == "run it: orch sweep small.yaml --set micro_batch=2"
    assert "warning: small.yaml:6:11: this exclude matches nothing" in run.stderr


def test_plan_writes_nothing_and_starts_nothing(sweep: Path) -> None:
    orch("plan", "small.yaml", cwd=sweep.parent)
    orch("plan", "small.yaml", "--db", "results.db", cwd=sweep.parent)
    assert [path.name for path in sweep.parent.iterdir()] == ["small.yaml"]


def test_plan_json_has_its_fixed_shape(sweep: Path) -> None:
    run = orch("plan", "small.yaml", "--json", cwd=sweep.parent)
    assert run.returncode == 0, run.stderr
    shown = json.loads(run.stdout)
    assert shown.keys() == {"count", "jobs"}
    assert shown["count"] == len(shown["jobs"]) == 10
    for job in shown["jobs"]:
        assert job.keys() == {"job", "cell", "repeat", "parameters", "command"}
        assert job["job"] == f"{job['cell'][3:9]}/{job['repeat']}"
    first, second, *_ = shown["jobs"]
    assert first["parameters"]["pin_memory"] is True
    assert first["command"] == (
        "python -m worker --pin_memory --nlayers 1 --hidden_dim 64 --dtype torch.bfloat16"
        " --iteration 4 --warmup 1"
    )
    assert second["command"].startswith(
        f"orch sweep small.yaml --name small-{second['job'][:6]} --set pin_memory=true"
    )
    assert shown["jobs"][4]["command"].startswith("deepspeed --num_gpus 3 --module worker --pin_memory")


def test_plan_command_of_a_job_plans_that_job_alone(sweep: Path) -> None:
    for job in json.loads(orch("plan", "small.yaml", "--json", cwd=sweep.parent).stdout)["jobs"][:5]:
        program, command, *words = shlex.split(job["command"])
        if (program, command) == ("orch", "sweep"):
            alone = json.loads(orch("plan", *words, "--json", cwd=sweep.parent).stdout)
            assert [only["cell"] for only in alone["jobs"]] == [job["cell"]]


def test_plan_command_sets_a_whole_deepspeed_section_by_its_leaves(tmp_path: Path) -> None:
    made = parse_plan("name: s\nds: {a: {d: 3}}\nmatrix: {ds.a: [{b: 1, c: [5]}, {b: 2, c: [5]}, null]}")
    for cell in made.cells:
        alone = parse_plan(made.source, overrides=cell_overrides(made, cell))
        assert [only.key for only in alone.cells] == [cell.key]


def test_plan_command_of_an_example_job_is_understood_by_the_worker(sweep: Path) -> None:
    (first, *_) = json.loads(orch("plan", "small.yaml", "--json", cwd=sweep.parent).stdout)["jobs"]
    options = parse(shlex.split(first["command"])[3:])
    assert (options.pin_memory, options.hidden_dim, options.dtype) == (True, 64, "torch.bfloat16")


def test_plan_json_shows_an_inactive_axis_as_null_and_ds_axes_by_dotted_name(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "matrix: {pin_memory: [false], ds: {a.b: [1]}}\n"
        "when: [{axis: non_blocking, if: {pin_memory: true}}]\n"
    )
    (job,) = json.loads(orch("plan", "s.yaml", "--json", cwd=tmp_path).stdout)["jobs"]
    assert job["parameters"]["non_blocking"] is None
    assert job["parameters"]["ds.a.b"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nmatrix: {pin_memory: [yes]}\n", "s.yaml:2:23: pin_memory: 'yes' is a string in YAML 1.2"),
        ("name: a\nname: b\n", "s.yaml:2:1: duplicate key 'name' (first at line 1)"),
        ("", "s.yaml: the file is empty"),
        ("name: a\nrepeats: 20000\n", "at most 10000 are allowed"),
    ],
)
def test_plan_refuses_with_one_message_and_status_2(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    run = orch("plan", "s.yaml", cwd=tmp_path)
    assert run.returncode == 2
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""


def test_plan_obeys_max_jobs_and_name(sweep: Path) -> None:
    assert orch("plan", "small.yaml", "--max-jobs", "9", cwd=sweep.parent).returncode == 2
    run = orch("plan", "small.yaml", "--max-jobs", "10", "--name", "other", cwd=sweep.parent)
    assert run.stdout.startswith("other: 10 jobs")


def test_plan_needs_no_torch(sweep: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['deepspeed'] = None;"
        "from orchestrator.cli.main import main; main(['plan', 'small.yaml'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=sweep.parent,
        timeout=60,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert run.returncode == 0, run.stderr


def test_schema_prints_a_json_schema(tmp_path: Path) -> None:
    run = orch("schema", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    jsonschema.Draft202012Validator.check_schema(json.loads(run.stdout))
    assert orch("schema", "-o", "schema.json", cwd=tmp_path).stdout == ""
    assert json.loads((tmp_path / "schema.json").read_text()) == json.loads(run.stdout)


def test_init_writes_a_starter_that_plans_and_never_overwrites(tmp_path: Path) -> None:
    run = orch("init", "mine.yaml", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "mine.yaml: written; next: orch plan mine.yaml\n"
    assert orch("plan", "mine.yaml", cwd=tmp_path).stdout.startswith("mine: ")
    (tmp_path / "mine.yaml").write_text("name: precious\n")
    again = orch("init", "mine.yaml", cwd=tmp_path)
    assert again.returncode == 2
    assert "mine.yaml: exists already; choose another name, or --force" in again.stderr
    assert (tmp_path / "mine.yaml").read_text() == "name: precious\n"
    assert orch("init", "mine.yaml", "--force", cwd=tmp_path).returncode == 0
    assert "precious" not in (tmp_path / "mine.yaml").read_text()


def test_init_says_why_it_cannot_write(tmp_path: Path) -> None:
    run = orch("init", "nowhere/mine.yaml", cwd=tmp_path)
    assert run.returncode == 2
    assert "nowhere/mine.yaml: cannot be written: No such file or directory" in run.stderr


def test_plan_names_a_shipped_sweep_as_it_is_called_on_any_host() -> None:
    made = load_plan("quickstart")
    assert launch_line(made, made.cells[0]).startswith("orch sweep quickstart --name quickstart-")
