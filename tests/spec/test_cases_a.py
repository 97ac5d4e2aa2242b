"""The cases A of CASES.md: sweep files as people write them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_plan
from tests.spec.reading import column, error, plan


def test_a1_spellings_of_one_number_are_numbers_and_merge_with_a_warning() -> None:
    made = plan("matrix: {dwell_s: [1e-6, 1.0e-6]}")
    assert column(made, "dwell_s") == [1e-6]
    assert made.warnings == ("sweep.yaml:2:26: dwell_s: 1e-06 is given twice; the two are one",)


@pytest.mark.parametrize("axis", ["dwell_s", "hidden_dim", "ds.zero_optimization.sub_group_size"])
def test_a1_1e6_is_a_number_for_every_kind_of_axis(axis: str) -> None:
    made = plan(f"matrix: {{{axis}: [1e6, 1.0e6, 1000000, 1E+6]}}")
    assert column(made, axis) == [1_000_000]
    assert all(not isinstance(value, str) for value in column(made, axis))
    assert len(made.warnings) == 3


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "Yes", "NO", "y", "n"])
def test_a2_boolean_axis_refuses_yaml_1_1_words(word: str) -> None:
    assert error(f"matrix: {{non_blocking: [true, {word}]}}") == (
        f"sweep.yaml:2:31: non_blocking: '{word}' is a string in YAML 1.2; write true or false"
    )


def test_a2_both_words_of_a_list_are_reported() -> None:
    assert error("matrix: {non_blocking: [on, off]}").count("is a string in YAML 1.2") == 2


@pytest.mark.parametrize("value", ["0", "1", '"true"', "1.0", "[true]", "{a: 1}"])
def test_a2_boolean_axis_takes_booleans_alone(value: str) -> None:
    assert "write true or false" in error(f"defaults: {{pin_memory: {value}}}")


def test_a2_string_axis_keeps_no_as_a_string() -> None:
    made = plan("matrix: {env.NCCL_P2P_DISABLE: [no, yes, on]}")
    assert column(made, "env.NCCL_P2P_DISABLE") == ["no", "yes", "on"]
    assert column(plan("ds: {a: {b: no}}"), "ds.a.b") == ["no"]


def test_a4_duplicate_key_names_both_lines() -> None:
    text = "defaults:\n  hidden_dim: 8\n  nlayers: 2\n  hidden_dim: 16\n"
    assert error(text) == "sweep.yaml:5:3: duplicate key 'hidden_dim' (first at line 3); remove one"


@pytest.mark.parametrize(
    "text",
    [
        "repeats: 1\nrepeats: 2",
        "matrix: {pin_memory: [true], pin_memory: [false]}",
        "ds: {zero_optimization: {a: 1, a: 2}}",
        "cells: [{nlayers: 1, nlayers: 1}]",
        'defaults: {nlayers: 1, "nlayers": 1}',
    ],
)
def test_a4_duplicate_key_is_refused_at_every_depth(text: str) -> None:
    assert "duplicate key" in error(text)


def test_a4_dotted_and_nested_spelling_of_one_axis_name_both_lines() -> None:
    text = "matrix:\n  ds.a.b: [1]\n  ds:\n    a:\n      b: [2]\n"
    assert "'ds.a.b' is given twice (first at line 3)" in error(text)


def test_a5_merge_key_with_an_override_that_wins() -> None:
    made = plan(
        """
        name: a5
        x-base: &base
          nlayers: 2
          hidden_dim: 64
        defaults:
          <<: *base
          hidden_dim: 128
        """
    )
    assert column(made, "nlayers") == [2]
    assert column(made, "hidden_dim") == [128]


@pytest.mark.parametrize("order", ["<<: *base, nlayers: 4", "nlayers: 4, <<: *base"])
def test_a5_override_wins_wherever_the_merge_key_stands(order: str) -> None:
    made = plan(f"base: &base {{nlayers: 2, hidden_dim: 64}}\ndefaults: {{{order}}}")
    assert column(made, "nlayers") == [4]
    assert column(made, "hidden_dim") == [64]


def test_a5_list_of_merges_the_earlier_wins() -> None:
    made = plan("x-a: &a {nlayers: 2}\nx-b: &b {nlayers: 3, seq_len: 7}\ndefaults: {<<: [*a, *b]}")
    assert (column(made, "nlayers"), column(made, "seq_len")) == ([2], [7])


def test_a7_a_list_value_is_one_value() -> None:
    made = plan("matrix: {included_state: [[optim_states], [optim_states, hp_params], all]}")
    assert column(made, "included_state") == ["optim_states", "optim_states+hp_params", "all"]


def test_a8_nested_axes_give_exactly_the_product() -> None:
    made = plan(
        """
        matrix:
          ds:
            zero_optimization.sub_group_size: [1e6, 2e6]
            zero_optimization.reduce_bucket_size: [3e6, 4e6]
        """
    )
    pairs = list(
        zip(
            column(made, "ds.zero_optimization.sub_group_size"),
            column(made, "ds.zero_optimization.reduce_bucket_size"),
            strict=True,
        )
    )
    assert pairs == list(itertools.product([1_000_000, 2_000_000], [3_000_000, 4_000_000]))
    assert made.cells[0].ds == {
        "zero_optimization": {"sub_group_size": 1_000_000, "reduce_bucket_size": 3_000_000}
    }


@pytest.mark.parametrize(
    "spelling",
    [
        "{ds: {a: {b: [1, 2], c: [3, 4]}}}",
        "{ds: {a.b: [1, 2], a: {c: [3, 4]}}}",
        "{ds.a.b: [1, 2], ds.a.c: [3, 4]}",
        "{ds.a: {b: [1, 2], c: [3, 4]}}",
    ],
)
def test_a8_every_spelling_gives_the_same_cells(spelling: str) -> None:
    made = plan(f"matrix: {spelling}")
    reference = plan("matrix: {ds: {a.b: [1, 2], a.c: [3, 4]}}")
    assert [cell.key for cell in made.cells] == [cell.key for cell in reference.cells]


def test_a9_inactive_axis_is_null_and_equal_cells_merge() -> None:
    made = plan(
        """
        matrix:
          pin_memory: [true, false]
          non_blocking: [true, false]
        when:
          - axis: non_blocking
            if: {pin_memory: true}
        """
    )
    pairs = list(zip(column(made, "pin_memory"), column(made, "non_blocking"), strict=True))
    assert pairs == [(True, True), (True, False), (False, None)]
    assert made.warnings == ()


def test_a10_zip_pairs_lists_of_equal_length() -> None:
    made = plan("zip: [{nlayers: [1, 2], hidden_dim: [64, 32]}]")
    assert list(zip(column(made, "nlayers"), column(made, "hidden_dim"), strict=True)) == [(1, 64), (2, 32)]


def test_a10_zip_refuses_lists_of_unequal_length() -> None:
    assert error("zip:\n  - nlayers: [1, 2]\n    hidden_dim: [64]\n") == (
        "sweep.yaml:4:17: zip needs lists of equal length: nlayers has 2, hidden_dim has 1; make them as long"
    )


def test_a11_extra_cell_stays_though_an_exclude_matches_it() -> None:
    made = plan(
        """
        matrix: {pin_memory: [true, false], nlayers: [1, 2]}
        exclude: [{pin_memory: false, nlayers: 2}]
        cells: [{pin_memory: false, nlayers: 2}]
        """
    )
    assert len(made.cells) == 4
    assert made.warnings == ()


def test_a11_exclude_that_matches_nothing_is_a_warning() -> None:
    made = plan("matrix: {nlayers: [1, 2]}\nexclude:\n  - {nlayers: 3}\n")
    assert len(made.cells) == 2
    assert made.warnings == ("sweep.yaml:4:5: this exclude matches nothing",)


def test_a11_exclude_that_matches_an_extra_cell_alone_is_a_warning() -> None:
    made = plan("matrix: {nlayers: [1]}\nexclude: [{nlayers: 3}]\ncells: [{nlayers: 3}]")
    assert column(made, "nlayers") == [1, 3]
    assert len(made.warnings) == 1


@pytest.mark.parametrize(
    "name", ["offload_s", "status", "job_id", "freed_bytes", "offload_s_median", "sweep"]
)
@pytest.mark.parametrize("section", ["matrix: {%s: [1]}", "defaults: {%s: 1}", "exclude: [{%s: 1}]"])
def test_a13_name_of_a_result_column_is_reserved(name: str, section: str) -> None:
    message = error(section % name)
    assert f"'{name}' is a reserved name" in message
    assert message.startswith("sweep.yaml:2:")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"# only a comment\n", "the file is empty"),
        (b"---\n", "the file is empty"),
        (b"name: a\n---\nname: b\n", ":2:1: a second document begins here"),
        (b"name: a\ndefaults:\n\tnlayers: 1\n", ":3:1: a tab where YAML wants spaces"),
        (b"- name: a\n", ":1:1: the file holds a list"),
        (b"just words\n", ":1:1: the file holds a single value"),
        (b"name: a\ndefaults: {model: \xff}\n", ":2:19: byte 0xff is not UTF-8"),
        (b"name: 'a\n", "unexpected end of stream"),
        (b"name: a\x00b\n", ":1:8: a control character"),
    ],
)
def test_a16_file_that_is_no_sweep_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError) as caught:
        load_plan(path)
    text = caught.value.render()
    assert text.startswith(str(path))
    assert message in text


def test_a16_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such file"):
        load_plan(tmp_path / "sweep.yaml")


def test_a16_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a directory"):
        load_plan(tmp_path)
