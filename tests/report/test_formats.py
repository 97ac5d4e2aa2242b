"""One value in every format: exact where a program reads, short where a person does."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import OrchError
from orchestrator.render.formats import render_rows
from orchestrator.render.values import human_bytes, human_seconds, three_digits

Rows = Sequence[Sequence[object]]


def rendered(
    columns: Sequence[str], rows: Rows, format_: str, *, humanise: bool = True, width: int | None = None
) -> str:
    out = io.StringIO()
    render_rows(columns, rows, format=format_, out=out, humanise=humanise, width=width)
    return out.getvalue()


def markdown_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("format_", ["table", "markdown", "csv", "json"])
def test_d1_every_row_comes_out(format_: str) -> None:
    rows: Rows = [[1, "same"]] * 3 + [[None, None]]
    text = rendered(["n", "label"], rows, format_)
    if format_ == "json":
        assert len(json.loads(text)) == 4
    elif format_ == "csv":
        assert len(list(csv.DictReader(io.StringIO(text)))) == 4
    else:
        assert len(text.splitlines()) == 2 + 4


def test_d1_a_csv_of_one_column_keeps_its_missing_rows() -> None:
    frame = pd.read_csv(io.StringIO(rendered(["x"], [[1], [None], [2]], "csv")))
    assert len(frame) == 3


def test_d1_columns_of_one_name_stay_apart() -> None:
    assert json.loads(rendered(["x", "x"], [[1, 2]], "json")) == [{"x": 1, "x_2": 2}]


@pytest.mark.parametrize(
    "value", ["a|b", "a\nb", "a\r\nb", "a`b", "a\\|b", "a\\", "<b>", "| --- |", "\x1b[31m"]
)
def test_d2_any_value_stays_in_its_markdown_cell(value: str) -> None:
    lines = rendered(["label", "n"], [[value, 1]], "markdown").splitlines()
    assert len(lines) == 3
    for line in lines:
        bare = line.replace("\\\\", "").replace("\\|", "")
        assert bare.count("|") == 3
    assert "`" not in lines[2].replace("\\`", "")


@pytest.mark.parametrize("label", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\tx", "\r=1", "＝1"])
def test_d3_a_label_cannot_run_in_a_spreadsheet(label: str) -> None:
    [row] = csv.DictReader(io.StringIO(rendered(["label"], [[label]], "csv"), newline=""))
    assert row["label"] == "'" + label


def test_d3_a_heading_cannot_run_in_a_spreadsheet() -> None:
    assert rendered(["=1+1"], [[1]], "csv").startswith("'=1+1")


@pytest.mark.parametrize("value", [-5, -0.25, "-5", "-1e-06", "+3"])
def test_d3_a_negative_number_stays_a_number(value: object) -> None:
    frame = pd.read_csv(io.StringIO(rendered(["x"], [[value]], "csv")))
    assert frame["x"][0] == float(str(value))


def test_d6_numbers_are_printed_exactly() -> None:
    rows: Rows = [[18198419456, 123456789.12, 7], [1, 0.1, None]]
    columns = ["freed_bytes", "x", "n"]
    assert "18198419456,123456789.12,7\n1,0.1,\n" in rendered(columns, rows, "csv")
    assert json.loads(rendered(columns, rows, "json"))[1] == {"freed_bytes": 1, "x": 0.1, "n": None}
    assert "| 18198419456 | 123456789.12 | 7 |" in rendered(columns, rows, "markdown", humanise=False)
    table = rendered(columns, rows, "table", humanise=False)
    assert "18198419456" in table
    assert "123456789.12" in table
    assert "7.0" not in table


def test_d6_a_table_for_people_shortens_what_has_a_unit_only() -> None:
    text = rendered(
        ["freed_bytes", "offload_s", "link_share", "n"], [[18198419456, 0.64231, 0.971, 1234567]], "table"
    )
    assert text.split()[-7:] == ["18.2", "GB", "0.642", "s", "97", "%", "1234567"]


def test_c6_nan_and_infinity_are_apart_from_missing() -> None:
    rows: Rows = [[math.nan], [math.inf], [-math.inf], [None]]
    assert rendered(["x"], rows, "csv") == 'x\nNaN\ninf\n-inf\n""\n'
    assert [row["x"] for row in json.loads(rendered(["x"], rows, "json"))] == ["NaN", "inf", "-inf", None]
    assert [line.strip("| ") for line in markdown_rows(rendered(["x"], rows, "markdown"))[2:]] == [
        "NaN", "inf", "-inf", "–",
    ]  # fmt: skip


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.integers(-(2**62), 2**62)), min_size=1))
def test_csv_numbers_survive_pandas(rows: list[tuple[float, int]]) -> None:
    text = rendered(["x", "n"], rows, "csv")
    frame = pd.read_csv(io.StringIO(text), dtype={"x": float})
    assert list(zip(frame["x"], frame["n"], strict=True)) == rows


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
)
def test_csv_text_survives_pandas_but_for_the_apostrophe(labels: list[str]) -> None:
    text = rendered(["label"], [[label] for label in labels], "csv")
    frame = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False)
    assert [found in (label, "'" + label) for found, label in zip(frame["label"], labels, strict=True)] == [
        True
    ] * len(labels)


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_markdown_is_one_table_whatever_the_values(values: list[str]) -> None:
    lines = rendered([f"c{n}" for n in range(len(values))], [values], "markdown").splitlines()
    assert len(lines) == 3
    assert all(line.startswith("|") and line.endswith("|") for line in lines)


def test_parquet_keeps_types_and_missing_values(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    with path.open("wb") as out:
        render_rows(
            ["n", "x", "ok", "label"],
            [[2**62, 0.1, True, "=a"], [None, None, None, None]],
            format="parquet",
            out=out,
        )
    frame = pd.read_parquet(path, dtype_backend="pyarrow")
    assert frame["n"][0] == 2**62
    assert frame["label"][0] == "=a"
    assert frame.isna().sum().sum() == 4


def test_a_decimal_of_the_driver_is_a_number() -> None:
    assert json.loads(rendered(["a", "b"], [[Decimal(3), Decimal("0.5")]], "json")) == [{"a": 3, "b": 0.5}]


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(OrchError, match="use table"):
        rendered(["x"], [], "xml")


def test_a_narrow_terminal_gets_a_block_a_row_and_loses_nothing() -> None:
    columns = [f"column_number_{n}" for n in range(12)]
    text = rendered(columns, [[f"value{n}" for n in range(12)]], "table", width=60)
    assert all(f"value{n}" in text for n in range(12))
    assert max(len(line) for line in text.splitlines()) <= 60


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in rendered(["label"], [["\x1b[31mred"]], "table")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (35_361_835_520, "35.4 GB"),
        (999_600, "1.00 MB"),
        (-5e9, "-5.00 GB"),
    ],
)
def test_human_bytes(value: float, text: str) -> None:
    assert human_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.0412, "0.0412 s"),
        (14.604, "14.6 s"),
        (599.0, "599 s"),
        (1200.0, "20.0 min"),
        (9000.0, "2.50 h"),
    ],
)
def test_human_seconds(value: float, text: str) -> None:
    assert human_seconds(value) == text


def test_three_digits_has_no_exponent() -> None:
    assert [three_digits(value) for value in (1e-9, 1e9, 0.0001234)] == ["0", "1000000000", "0.000123"]
