"""Reading YAML: bombs, depth, tags, places."""

from __future__ import annotations

import json
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec.jsontext import parse_json
from orchestrator.spec.load import parse_plan
from orchestrator.spec.source import parse_yaml
from tests.spec.reading import error


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        bomb(30, 9),
        "a: " + "[" * 30_000 + "]" * 30_000,
        "a: " + "{b: " * 5_000 + "1" + "}" * 5_000,
        "a: &x [*x]\n",
        "a: &x {b: *x}\n",
        "\n".join(" " * depth + f"k{depth}:" for depth in range(500)),
        "- " * 3_000 + "x",
        "x: &x {a: 1}\n" + "\n".join(f"b{n}: {{<<: [{', '.join(['*x'] * 200)}]}}" for n in range(200)),
    ],
)
def test_bomb_is_refused_without_using_memory(text: str) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SpecError):
        parse_yaml(text, "bomb.yaml")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 500_000


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!foo", "!!int", "!!binary", "!!set"])
def test_tag_is_refused(tag: str) -> None:
    assert "the tag" in error(f"defaults: {{nlayers: {tag} 1}}")


def test_string_tag_keeps_a_number_as_text() -> None:
    node = parse_yaml("a: !!str 010\nb: ! 12\n", "x")
    assert node is not None
    assert node.plain() == {"a": "010", "b": "12"}


def test_yaml_1_1_directive_is_refused() -> None:
    assert error("%YAML 1.1\n---\nname: a\n") == (
        "sweep.yaml:2:1: %YAML 1.1 is not read; sweep files are YAML 1.2: drop the line"
    )


def test_yaml_1_2_directive_and_byte_order_mark_are_read() -> None:
    assert parse_plan("\ufeff%YAML 1.2\n---\nname: a\n").name == "a"


def test_crlf_and_unicode_are_read() -> None:
    made = parse_plan("name: a\r\nenv:\r\n  GREETING: grüß 世界\r\n")
    assert made.cells[0].env == {"GREETING": "grüß 世界"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: a\ndefaults: {1: 2}\n", "x.yaml:2:12"),
        ("name: a\n? [b]\n: 1\n", "x.yaml:2:3"),
        ("name: a\nb: *nowhere\n", "x.yaml:2:4"),
        ("name: a\n  b: 1\n", "x.yaml:2:4"),
        ("name: [a\n", "x.yaml:2:1"),
    ],
)
def test_syntax_error_has_its_place(text: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "x.yaml")
    assert caught.value.where == place


@given(st.text(max_size=80))
def test_any_text_gives_a_plan_or_a_spec_error(text: str) -> None:
    try:
        parse_plan(text, where="x.yaml")
    except SpecError as refused:
        assert refused.render()


@given(
    st.lists(
        st.sampled_from(["name: a", "defaults:", "  nlayers: 2", "matrix:", "  ds:", "    a: [1, 2]", "- x",
                         "  - {a: b}", "when:", "  - axis: ds.a", "    if: {nlayers: 2}", "zip: [1]",
                         "cells: [{}]", "repeats: 0", "limits: 3", "engine: {}", "ds: '@x'", "env: {A: 1}",
                         "launcher: [fork]", "exclude: [[]]", "  - axis: []", "seed: 1e400", "&a", "<<: *a"]),
        max_size=10,
    )
)  # fmt: skip
def test_any_shuffled_lines_give_a_plan_or_a_spec_error(lines: list[str]) -> None:
    try:
        parse_plan("\n".join(lines), where="x.yaml")
    except SpecError as refused:
        assert refused.render()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 0, 2, "\t"]))
def test_json_with_places_holds_what_json_says(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    assert parse_json(f"\n {text} ", "x.json").plain() == json.loads(text)
