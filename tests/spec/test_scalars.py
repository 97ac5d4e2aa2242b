"""What a plain scalar means."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.spec.scalars import ScalarRefused, plain_scalar
from tests.spec.reading import error


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("1e6", 1e6), ("1.0e6", 1e6), ("+1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("-0", 0),
        ("0", 0), ("12", 12), ("-7", -7), ("0o17", 15), ("0xff", 255), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), (".inf", math.inf), ("-.inf", -math.inf),
        ("yes", "yes"), ("on", "on"), ("1.2.3", "1.2.3"), ("10.0.0.1:6379", "10.0.0.1:6379"),
        ("node[01-04]", "node[01-04]"), ("e5", "e5"), ("-", "-"), ("1e", "1e"), ("0,1", "0,1"),
    ],
)  # fmt: skip
def test_plain_scalar_follows_yaml_1_2(text: str, value: object) -> None:
    read = plain_scalar(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("010", "leading zero"), ("-007", "leading zero"), ("00", "leading zero"), ("01.5", "leading zero"),
        ("1_000", "underscore"), ("1e6_0", "underscore"), ("1_0.5", "underscore"), ("0x_ff", "underscore"),
        ("2024-01-01", "date"), ("2024-1-1", "date"), ("2001-12-14T21:59:43Z", "date"),
        ("1:30", "base-60"), ("190:20:30", "base-60"), ("20:30.15", "base-60"), ("0b101", "1.1"),
    ],
)  # fmt: skip
def test_look_alike_is_refused_with_a_way_out(text: str, word: str) -> None:
    with pytest.raises(ScalarRefused) as caught:
        plain_scalar(text)
    assert word in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize("text", ["010", "1_000", "1e6_0", "2024-01-01", "1:30"])
@pytest.mark.parametrize("axis", ["hidden_dim", "dwell_s", "ds.a", "env.A", "model"])
def test_look_alike_is_refused_as_an_axis_value_with_its_place(text: str, axis: str) -> None:
    assert error(f"matrix:\n  {axis}: [{text}]\n").startswith(f"sweep.yaml:3:{len(axis) + 6}: '{text}'")


def test_endless_number_is_refused() -> None:
    with pytest.raises(ScalarRefused):
        plain_scalar("1" * 10_000)


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_every_integer_reads_back(number: int) -> None:
    assert plain_scalar(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_reads_back(number: float) -> None:
    assert plain_scalar(repr(number)) == number


@given(st.text(min_size=1, max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        plain_scalar(text)
    except ScalarRefused as refused:
        assert refused.what
