"""A narrow terminal: the answer stays on it, what does not fit is named, nothing is torn."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import Result

from orchestrator.render.columns import Spare, folded, shown_columns
from orchestrator.render.formats import render_rows
from tests.report.conftest import Orch
from tests.report.test_terminal import on_terminal, widest

SHIPPED = Path(__file__).parents[2] / "docs" / "data" / "h200-x2.db"


def lines_of_table(text: str) -> list[str]:
    """From the rule under the heading to the first empty line."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("───"))
    return lines[start - 2 : lines.index("", start) if "" in lines[start:] else None]


@pytest.mark.parametrize(("columns", "sweep"), [(60, "cpu-quick"), (80, "cpu-quick"), (80, "gpu-full")])
def test_a_narrow_report_is_a_table_that_says_what_it_left_out(
    results: Path, columns: int, sweep: str
) -> None:
    text = on_terminal(results, "report", sweep, columns=columns, NO_COLOR="1", PAGER="cat")
    assert "── 1 ──" not in text
    assert widest(text) <= columns
    table = " ".join(lines_of_table(text))
    assert "offload" in table
    assert "reload" in table
    assert "left out for want of width: " in table
    assert "--wide" in table


def test_no_figure_is_parted_from_its_unit_at_any_width(results: Path) -> None:
    for columns in (80, 100, 120):
        text = on_terminal(results, "report", "gpu-full", columns=columns, NO_COLOR="1", PAGER="cat")
        cells = [cell for line in lines_of_table(text) for cell in line.split("  ")]
        assert not {cell.strip() for cell in cells} & {"s", "ms", "GB", "MB", "kB", "%", "s (", "/"}


def test_wide_shows_every_column_on_a_narrow_terminal(results: Path) -> None:
    text = on_terminal(results, "report", "cpu-quick", "--wide", columns=60, NO_COLOR="1", PAGER="cat")
    assert "left out" not in text
    assert max(map(len, lines_of_table(text))) > 60
    assert all(name in text for name in ("cold offload", "cold reload", "pinned host", "states"))


@pytest.mark.parametrize("format_", ["csv", "json", "markdown", "html"])
def test_wide_is_refused_where_nothing_is_left_out(orch: Orch, format_: str) -> None:
    result: Result = orch("report", "--wide", "--format", format_)
    assert result.exit_code == 2
    assert "--wide" in result.stderr


@pytest.mark.parametrize("sweep", ["cpu-quick", "gpu-full"])
@pytest.mark.parametrize("per", ["job", "iteration"])
def test_rows_of_a_narrow_terminal_are_lines_with_their_times(results: Path, per: str, sweep: str) -> None:
    text = on_terminal(results, "report", sweep, "--per", per, columns=80, NO_COLOR="1", PAGER="cat")
    assert "── 1 ──" not in text
    assert widest(text) <= 80
    table = " ".join(lines_of_table(text))
    assert "offload" in table
    assert "columns; all: --wide" in table


def test_a_pipe_gets_every_column(orch: Orch) -> None:
    text = orch("report", "gpu-full").stdout
    assert "left out for want of width" not in text
    assert "cold offload" in text


def test_spare_columns_go_in_their_order_and_only_as_far_as_needed() -> None:
    names, row = ["answer", "second", "third"], ["x" * 10, "y" * 10, "z" * 10]
    spare = Spare(("third", "second"), hint="all: elsewhere")
    assert shown_columns(names, [row], spare, 34) == [0, 1, 2]
    assert shown_columns(names, [row], spare, 33) == [0, 1]
    assert shown_columns(names, [row], spare, 12) == [0]
    assert shown_columns(names, [row], spare, 9) is None
    out = io.StringIO()
    render_rows(names, [row], format="table", out=out, width=33, spare=spare)
    assert "z" not in out.getvalue().partition("left out")[0]
    assert "left out for want of width: third; all: elsewhere" in " ".join(out.getvalue().split())


def test_without_room_for_what_must_stay_each_row_is_a_block_with_everything() -> None:
    out = io.StringIO()
    spare = Spare(("third",), hint="all: elsewhere")
    render_rows(["a", "b", "third"], [["x" * 20, "y" * 20, "z" * 20]], format="table", out=out, width=30,
                spare=spare)  # fmt: skip
    assert all(letter * 20 in out.getvalue() for letter in "xyz")
    assert "left out" not in out.getvalue()


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("0.223 s (0.213–0.340)", 15, ["0.223 s", "(0.213–0.340)"]),
        ("5.11 ms (4.53 ms–0.0112 s)", 20, ["5.11 ms", "(4.53 ms–0.0112 s)"]),
        ("<1 / 38 %", 4, ["<1 / 38 %"]),
        ("optim_states+hp_params+lp_grads", 22, ["optim_states+", "hp_params+lp_grads"]),
        ("included_state=keep_lp_params", 16, ["included_state=", "keep_lp_params"]),
        ("pin_memory=yes", 5, ["pin_memory=yes"]),
        ("two words", 5, ["two", "words"]),
        ("short", 10, ["short"]),
        ("a\nb", 10, ["a", "b"]),
        ("", 4, [""]),
    ],
)
def test_texts_are_broken_between_figures_never_inside_one(text: str, width: int, lines: list[str]) -> None:
    assert folded(text, width).split("\n") == lines


def test_a_state_set_that_has_a_name_is_called_by_it_for_people_and_spelt_out_for_programs(
    orch: Orch,
) -> None:
    shipped = ("known_faults", "--db", SHIPPED)
    assert "keep_lp_params" in orch("report", *shipped).stdout
    assert "optim_states+hp_params+lp_grads" not in orch("report", *shipped).stdout
    text = orch("report", *shipped, "--format", "csv").stdout
    assert "optim_states+hp_params+lp_grads+contiguous_grad_buffer" in text
    assert "keep_lp_params" not in text


def test_many_axes_share_a_column_and_are_said_once_where_most_rows_share_them(results: Path) -> None:
    text = on_terminal(results, "report", "gpu-full", columns=80, NO_COLOR="1", PAGER="cat")
    assert "unless a row says otherwise: dtype=bfloat16" in text
    assert not [line for line in lines_of_table(text) if "dtype=bfloat16" in line]
    assert [line for line in lines_of_table(text) if "dtype=float" in line]


@pytest.mark.parametrize("per", ["job", "iteration"])
def test_narrow_rows_of_jobs_keep_the_axes_that_vary(per: str) -> None:
    """As docs/reports.md says: the frozen heap is what tells these two jobs apart."""
    arguments = ("report", "findings", "--per", per, "--where", "hidden_dim=8192")
    text = on_terminal(SHIPPED, *arguments, columns=80, NO_COLOR="1", PAGER="cat")
    assert widest(text) <= 80
    assert "gc_freeze=yes" in text
    few = on_terminal(SHIPPED, *arguments, columns=50, NO_COLOR="1", PAGER="cat")
    assert "── 1 ──" not in few
    assert widest(few) <= 50


def test_conditions_that_head_columns_keep_their_spelling() -> None:
    text = on_terminal(
        SHIPPED, "report", "example_4096", "--layout", "example", columns=80, NO_COLOR="1", PAGER="cat"
    )
    assert text.count("pin_memory=") == text.count("non_blocking=") == 4


def test_a_comparison_on_80_columns_is_a_row_a_cell_with_both_medians(results: Path) -> None:
    text = on_terminal(results, "compare", "cpu-quick", "cpu-quick", columns=80, NO_COLOR="1", PAGER="cat")
    assert "── 1 ──" not in text
    assert widest(text) <= 80
    heading = " ".join(lines_of_table(text)[:2])
    assert all(word in heading for word in ("verdict", "where", "metric", "A", "B", "change"))
    assert "left out for want of width: cell, n; all: --format csv" in " ".join(text.split())


def test_show_of_a_job_on_a_cpu_gives_no_figure_of_bytes_that_move(orch: Orch) -> None:
    text = orch("show", "1").stdout
    assert "offload_s_median" in text
    for name in ("gbps", "freed_bytes", "copied_bytes"):
        assert name not in text
