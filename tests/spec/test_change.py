"""What changed between two takes of a sweep file."""

from __future__ import annotations

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.change import check_types, type_changes
from tests.spec.reading import plan


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ("ds: {a: 8}", "ds: {a: '8'}", 'ds.a: 8 was a number, now "8" is a string'),
        ("ds: {a: 'true'}", "ds: {a: true}", 'ds.a: "true" was a string, now true is a boolean'),
        (
            "matrix: {ds.a: [1, 2]}",
            "matrix: {ds.a: [1, 2, '2']}",
            'ds.a: 2 was a number, now "2" is a string',
        ),
        ("ds: {a: 1}", "ds: {a: [1]}", "ds.a: 1 was a number, now [1] is a list"),
        ("ds: {a: true}", "ds: {a: 1}", "ds.a: true was a boolean, now 1 is a number"),
    ],
)
def test_c10_value_of_another_type_is_refused(before: str, now: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_types(f"name: test\n{before}\n", plan(now))
    assert message in caught.value.render()
    assert "--name" in caught.value.fix


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("ds: {a: 1}", "ds: {a: 1.5}"),
        ("ds: {a: 1e6}", "ds: {a: 1000000}"),
        ("ds: {a: true}", "ds: {a: auto}"),
        ("ds: {a: 1}", "ds: {b: x}"),
        ("matrix: {ds.a: [1, x]}", "matrix: {ds.a: [x]}"),
        ("matrix: {included_state: [all]}", "matrix: {included_state: [[hp_params]]}"),
        ("defaults: {nlayers: 1}", "matrix: {nlayers: [1, 2]}"),
        ("no: [valid sweep", "ds: {a: 1}"),
        ("ds: '@gone.json'", "ds: {a: 1}"),
    ],
)
def test_c10_other_changes_are_no_change_of_type(before: str, now: str) -> None:
    assert type_changes(f"name: test\n{before}\n", plan(now)) == ()
