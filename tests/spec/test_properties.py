"""Expansion against brute force, written a second time without the product, overlay or rules code."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec.axes import AXIS_BY_NAME
from orchestrator.spec.command import cell_overrides
from orchestrator.spec.load import parse_plan
from orchestrator.spec.plan import Plan

VALUES: dict[str, list[Any]] = {
    "pin_memory": [True, False],
    "non_blocking": [True, False],
    "nlayers": [1, 2, 3],
    "hidden_dim": [8, 16, 32],
    "dwell_s": [0.0, 0.5, 2.0],
    "dtype": ["bfloat16", "float32"],
    "ds.a.b": [1, 2],
    "ds.a.c": ["x", "y"],
    "env.X": ["p", "q"],
}
FREE = ("ds.a.b", "ds.a.c", "env.X")


def value_of(axis: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(VALUES[axis])


@st.composite
def conditions(draw: st.DrawFn, allowed: list[str]) -> dict[str, Any]:
    condition: dict[str, Any] = {}
    for axis in draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=2, unique=True)):
        numeric = not isinstance(VALUES[axis][0], (bool, str))
        kind = draw(st.sampled_from(["is", "any", "ne", *(["lt", "ge"] if numeric else [])]))
        if kind == "is":
            condition[axis] = draw(value_of(axis))
        elif kind == "any":
            condition[axis] = draw(st.lists(value_of(axis), min_size=1, max_size=2))
        else:
            condition[axis] = {kind: draw(value_of(axis))}
    return condition


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, Any]:
    """A sweep with every section; ds and env keys have constants, so that every condition is legal."""
    axes = draw(st.permutations(sorted(VALUES)))
    split = draw(st.integers(0, 4))
    spec: dict[str, Any] = {"name": "p", "ds": {"a": {"b": 7, "c": "z"}}, "env": {"X": "r"}}
    spec["defaults"] = {axis: draw(value_of(axis)) for axis in axes[6:] if axis not in FREE}
    spec["matrix"] = {axis: draw(st.lists(value_of(axis), min_size=1, max_size=3)) for axis in axes[:split]}
    if draw(st.booleans()):
        size = draw(st.integers(1, 3))
        group = axes[split : split + 2]
        spec["zip"] = [{axis: draw(st.lists(value_of(axis), min_size=size, max_size=size)) for axis in group}]
    # A rule may ask only for axes before it: no circles.
    order = draw(st.permutations(sorted(VALUES)))
    targets = draw(st.lists(st.integers(1, len(order) - 1), max_size=3))
    spec["when"] = draw(
        st.permutations(
            [{"axis": order[place], "if": draw(conditions(list(order[:place])))} for place in targets]
        )
    )
    spec["exclude"] = draw(st.lists(conditions(sorted(VALUES)), max_size=2))
    spec["cells"] = draw(
        st.lists(st.fixed_dictionaries({}, optional={a: value_of(a) for a in sorted(VALUES)}), max_size=2)
    )
    return spec


def met(condition: dict[str, Any], cell: dict[str, Any]) -> bool:
    for axis, wanted in condition.items():
        value = cell[axis]
        if value is None:
            return False
        if isinstance(wanted, list):
            if value not in wanted:
                return False
        elif isinstance(wanted, dict):
            ((kind, bound),) = wanted.items()
            if not {"ne": value != bound, "lt": kind == "lt" and value < bound,
                    "ge": kind == "ge" and value >= bound}[kind]:  # fmt: skip
                return False
        elif value != wanted:
            return False
    return True


def brute_force(spec: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Cells as tuples over ``VALUES``, distinct, in order."""
    start = {axis: AXIS_BY_NAME[axis].default for axis in VALUES if axis in AXIS_BY_NAME}
    start |= {"ds.a.b": 7, "ds.a.c": "z", "env.X": "r"} | spec["defaults"]
    rows: list[dict[str, Any]] = [start]
    for axis, values in spec["matrix"].items():
        rows = [{**row, axis: value} for row in rows for value in values]
    for group in spec.get("zip", []):
        length = len(next(iter(group.values())))
        rows = [
            {**row, **{axis: values[index] for axis, values in group.items()}}
            for row in rows
            for index in range(length)
        ]
    if not spec["matrix"] and not spec.get("zip") and spec["cells"]:
        rows = []
    kept = [cell for cell in (inactive(row, spec) for row in rows)
            if not any(met(condition, cell) for condition in spec["exclude"])]  # fmt: skip
    kept += [inactive({**start, **cell}, spec) for cell in spec["cells"]]
    return list(dict.fromkeys(tuple(cell[axis] for axis in VALUES) for cell in kept))


def inactive(row: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Settle the axes one after another: one whose rules all ask for settled axes comes next."""
    cell, rules = dict(row), list(spec["when"])
    while rules:
        open_axes = {rule["axis"] for rule in rules}
        axis = next(
            name for name in sorted(open_axes)
            if not any(open_axes & rule["if"].keys() for rule in rules if rule["axis"] == name)
        )  # fmt: skip
        own = [rule for rule in rules if rule["axis"] == axis]
        if not all(met(rule["if"], cell) for rule in own):
            cell[axis] = None
        rules = [rule for rule in rules if rule["axis"] != axis]
    return cell


def expanded(spec: dict[str, Any], **options: Any) -> Plan | None:
    """The plan; None if exclude leaves nothing. JSON is YAML."""
    try:
        return parse_plan(json.dumps(spec), **options)
    except SpecError as refused:
        assert "exclude leaves no job" in refused.what
        return None


@settings(max_examples=150, deadline=None)
@given(sweeps())
def test_expansion_equals_brute_force(spec: dict[str, Any]) -> None:
    expected = brute_force(spec)
    made = expanded(spec)
    got = [] if made is None else [
        tuple(cell.parameters().get(axis) for axis in VALUES) for cell in made.cells
    ]  # fmt: skip
    assert got == expected


@settings(max_examples=50, deadline=None)
@given(sweeps(), st.integers(1, 4), st.sampled_from(["interleave", "random", "sequential"]), st.integers())
def test_every_order_holds_every_job_once(spec: dict[str, Any], repeats: int, order: str, seed: int) -> None:
    made = expanded({**spec, "repeats": repeats, "order": order, "seed": seed})
    if made is None:
        return
    jobs = [(job.cell.key, job.repeat) for job in made.jobs]
    assert sorted(jobs) == sorted((cell.key, n) for cell in made.cells for n in range(1, repeats + 1))
    assert [job.position for job in made.jobs] == list(range(1, len(jobs) + 1))
    for cell in made.cells:
        assert [repeat for key, repeat in jobs if key == cell.key] == list(range(1, repeats + 1))


@settings(max_examples=50, deadline=None)
@given(sweeps(), st.sampled_from(sorted(VALUES)), st.data())
def test_set_leaves_one_value_of_an_axis(spec: dict[str, Any], axis: str, data: st.DataObject) -> None:
    value = data.draw(value_of(axis))
    made = expanded(spec, overrides=[f"{axis}={json.dumps(value)}"])
    if made is not None:
        assert {cell.parameters().get(axis) for cell in made.cells} <= {value, None}


@settings(max_examples=60, deadline=None)
@given(sweeps())
def test_overrides_of_a_cell_leave_that_cell_alone(spec: dict[str, Any]) -> None:
    made = expanded(spec)
    if made is None:
        return
    for cell in made.cells[:6]:
        alone = parse_plan(json.dumps(spec), overrides=cell_overrides(made, cell))
        assert [only.key for only in alone.cells] == [cell.key]
