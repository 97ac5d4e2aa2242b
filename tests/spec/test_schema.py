"""The JSON Schema and the loader agree on what is shipped and on what is wrong."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from orchestrator.spec.axes import AXES
from orchestrator.spec.load import load_plan, parse_plan
from orchestrator.spec.schema import json_schema
from orchestrator.spec.shipped import find_spec, shipped_sweeps
from orchestrator.spec.source import parse_yaml
from orchestrator.spec.starter import Host, hidden_dim_for, starter
from tests.spec.reading import error

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
HOSTS = [
    Host(0, "", 0, 16 * 10**9),
    Host(1, "NVIDIA A10G", 24 * 10**9, 64 * 10**9),
    Host(8, "NVIDIA H200", 141 * 10**9, 2 * 10**12),
]


def is_valid(text: str) -> bool:
    node = parse_yaml(text, "x.yaml")
    assert node is not None
    return bool(VALIDATOR.is_valid(node.plain()))


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_schema_completes_every_axis_in_every_section() -> None:
    for section in ("assignment", "lists", "condition"):
        assert {axis.name for axis in AXES} <= json_schema()["$defs"][section]["properties"].keys()


@pytest.mark.parametrize("name", sorted(shipped_sweeps()))
def test_shipped_sweep_is_valid_and_loads_without_a_warning(name: str) -> None:
    path = shipped_sweeps()[name]
    assert is_valid(path.read_text(encoding="utf-8"))
    made = load_plan(path)
    assert made.name == name
    assert made.warnings == ()
    assert len(made.jobs) < 500


def test_schema_offers_one_spelling_of_a_time_and_marks_the_other() -> None:
    keys = json_schema()["properties"]["limits"]["anyOf"][0]["properties"]
    offered = {name for name, key in keys.items() if not key.get("deprecated")}
    assert offered == {"timeout", "grace", "start_timeout", "hang", "retries", "consecutive_failures"}
    assert {name for name in keys if name not in offered} == {
        "timeout_s",
        "grace_s",
        "start_timeout_s",
        "hang_s",
    }


def test_quickstart_is_four_cells_twice() -> None:
    made = load_plan(shipped_sweeps()["quickstart"])
    assert (len(made.cells), made.repeats) == (4, 2)


def test_deepspeed_example_is_the_example_s_benchmark() -> None:
    made = load_plan(shipped_sweeps()["deepspeed_example"])
    settings = {(cell.values["pin_memory"], cell.values["non_blocking"]) for cell in made.cells}
    assert (len(settings), made.repeats) == (4, 10)
    (cell, *_) = made.cells
    shown = {name: cell.values[name] for name in ("hidden_dim", "nlayers", "num_gpus", "iteration", "warmup")}
    assert shown == {"hidden_dim": 32768, "nlayers": 4, "num_gpus": 4, "iteration": 10, "warmup": 5}


def test_full_covers_every_setting_size_dtype_and_stage() -> None:
    made = load_plan(shipped_sweeps()["full"])
    for axis, count in {"pin_memory": 2, "non_blocking": 2, "reload_non_blocking": 3, "included_state": 4,
                        "hidden_dim": 3, "dtype": 3, "zero_stage": 3}.items():  # fmt: skip
        assert len({cell.values[axis] for cell in made.cells}) == count, axis


def test_shipped_sweep_is_found_by_name_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for spelling in ("quickstart", "quickstart.yaml", "sweeps/quickstart.yaml"):
        assert find_spec(Path(spelling)) == shipped_sweeps()["quickstart"]
    assert find_spec(Path("elsewhere/quickstart.yaml")) == Path("elsewhere/quickstart.yaml")
    (tmp_path / "quickstart.yaml").write_text("name: mine\n")
    assert load_plan("quickstart.yaml").name == "mine"


@pytest.mark.parametrize("host", HOSTS)
def test_starter_is_valid_and_loads_without_a_warning(host: Host) -> None:
    text = starter(host, "my first sweep")
    assert is_valid(text)
    made = parse_plan(text)
    assert made.name == "my-first-sweep"
    assert made.warnings == ()


def test_starter_s_commented_parts_are_right_too() -> None:
    lines = starter(HOSTS[2], "s").splitlines()
    head = lines.index("# zip:                        # lists that advance together")
    tail = next(place for place, line in enumerate(lines) if line.startswith("# All axes"))
    text = "\n".join(line.removeprefix("# ") if line.startswith("# ") else line for line in lines[head:tail])
    assert is_valid(f"name: a\n{text}")
    assert parse_plan(f"name: a\nmatrix: {{pin_memory: [true, false]}}\n{text}").cells


def test_starter_is_sized_for_the_host() -> None:
    assert [hidden_dim_for(host) for host in HOSTS] == [256, 8192, 16384]


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nrepeat: 3",
        "name: a\nmatrix: {hiden_dim: [1]}",
        "name: a\nmatrix: {hidden_dim: 1}",
        "name: a\nmatrix: {hidden_dim: [0]}",
        "name: a\ndefaults: {pin_memory: yes}",
        "name: a\ndefaults: {dtype: float8}",
        "name: a\ndefaults: {included_state: [optim]}",
        "name: a\nwhen: [{axis: nlayers}]",
        "name: a\nexclude: [{nlayers: {like: 1}}]",
        "name: a\norder: foo",
        "name: a\nrepeats: 0",
        "name: a\nlimits: {timeout: -1}",
        "name: a\nengine: {name: local, partition: b}",
        "name: a\nlauncher: mpi",
        "name: a b",
        "name: a\nenv: {X: true}",
    ],
)
def test_schema_and_loader_refuse_the_same(text: str) -> None:
    assert not is_valid(text)
    assert error(text)


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nlimits: {timeout: 60, retries: 0}\nengine: {name: slurm, partition: b, extra: [-x]}",
        "name: a\nds: {zero_optimization: {overlap_comm: true}}",
        "name: a\ndefaults: {dtype: torch.bfloat16, numa: 0, hold_bytes: 1e9}",
        "name: a\ndefaults: {included_state: hp_params+lp_params}",
        "name: a\nmatrix: {ds: {a: {b: [1, 2]}}, ds.c: [[1], null], env.X: [a, 1]}\nexclude: [{ds.c: null}]",
        "x-t: &t {nlayers: 2}\nname: a\ncells: [{<<: *t}, {pin_memory_then: null}]",
        "name: a\nexclude:\nwhen: [{axis: [dwell_s, hold_bytes], if: {nlayers: {ne: 3, ge: 1}}}]",
    ],
)
def test_schema_and_loader_accept_the_same(text: str) -> None:
    assert is_valid(text)
    assert parse_plan(text).cells
