"""``orch report``: nothing lost, nothing mixed, and the same numbers as the database."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import Result

from orchestrator.analysis.report import ReportRequest, build_report
from orchestrator.render.report import people_table
from orchestrator.store import Store, open_store
from tests.fixtures.make_results import JobPlan, Writer, axes

SHIPPED = Path(__file__).parents[2] / "docs" / "data" / "h200-x2.db"
Orch = Callable[..., Result]
Sql = Callable[[str], list[tuple[Any, ...]]]


def lines_of(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def table_rows(text: str) -> list[list[str]]:
    """The cells of the first markdown table, heading first."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in (rows[0], *rows[2:])]


def test_the_latest_sweep_is_meant_without_a_name(orch: Orch) -> None:
    assert "gpu-full: 65 jobs" in orch("report").stdout


def test_an_unknown_sweep_names_those_there_are(orch: Orch) -> None:
    result = orch("report", "nope")
    assert result.exit_code == 2
    assert "there are: gpu-full, cpu-quick" in result.stderr


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_d1_every_job_comes_out_whatever_its_status(orch: Orch, sql: Sql, format_: str) -> None:
    text = orch("report", "gpu-full", "--format", format_).stdout
    rows = json.loads(text) if format_ == "json" else list(csv.DictReader(io.StringIO(text)))
    expected = [str(job_id) for (job_id,) in sql("SELECT job_id FROM job WHERE sweep_id = 2 ORDER BY job_id")]
    assert sorted(str(row["job_id"]) for row in rows) == sorted(expected)


def test_d1_every_iteration_comes_out(orch: Orch, sql: Sql) -> None:
    rows = list(csv.DictReader(io.StringIO(orch("report", "--format", "csv", "--per", "iteration").stdout)))
    [(expected,)] = sql(
        "SELECT COUNT(*) FROM iteration JOIN attempt USING (attempt_id) JOIN job USING (job_id)"
        " WHERE sweep_id = 2"
    )
    assert len(rows) == expected
    assert len({(row["job_id"], row["attempt"], row["rank"], row["iteration"]) for row in rows}) == expected


def test_d1_a_cell_counts_its_repeats(orch: Orch, sql: Sql) -> None:
    rows = table_rows(orch("report", "--format", "markdown").stdout)
    jobs = rows[0].index("jobs")
    assert (
        sum(int(row[jobs]) for row in rows[1:])
        == sql("SELECT COUNT(*) FROM job WHERE sweep_id=2 AND status='ok'")[0][0]
    )


def test_d5_cells_with_an_inactive_axis_are_in_every_report(orch: Orch, sql: Sql) -> None:
    [(cell,)] = sql("SELECT cell FROM job WHERE non_blocking IS NULL AND sweep_id = 2")
    short = cell[3:9]
    assert short in orch("report").stdout
    assert short in orch("report", "--format", "markdown").stdout
    grouped = json.loads(orch("report", "--format", "json", "--by", "non_blocking").stdout)
    assert {row["non_blocking"] for row in grouped} == {True, False, None}
    [row] = [r for r in json.loads(orch("report", "--json").stdout) if r["cell"] == cell]
    assert row["non_blocking"] is None
    assert "0.186 / 0.0981" in orch("report", "--layout", "example", "--where", "non_blocking=null").stdout


def test_d6_sizes_are_exact_in_files_and_short_in_tables(orch: Orch, sql: Sql) -> None:
    [(exact,)] = sql("SELECT DISTINCT copied_bytes FROM job_result WHERE copied_bytes > 3e10")
    assert f",{exact}," in orch("report", "--format", "csv").stdout
    assert f'"copied_bytes": {exact}' in orch("report", "--json").stdout
    frame = pd.read_csv(io.StringIO(orch("report", "--format", "csv").stdout), dtype_backend="numpy_nullable")
    assert frame["copied_bytes"].dtype == "Int64"
    assert frame["copied_bytes"].max() == exact
    assert str(exact) not in orch("report").stdout


def test_d3_a_label_of_the_sweep_cannot_run_in_a_spreadsheet(orch: Orch) -> None:
    rows = list(csv.DictReader(io.StringIO(orch("report", "--format", "csv").stdout)))
    assert [row["env.NOTE"] for row in rows if row["env.NOTE"]] == ["'=1+1|<script>alert(1)</script>`"]


def test_d2_the_report_is_one_markdown_table(orch: Orch) -> None:
    text = orch("report", "--format", "markdown").stdout
    assert len(re.findall(r"^\|(?:-+:?\|)+$", text, re.MULTILINE)) == 1
    heading, *rows = table_rows(text)
    assert {len(row) for row in rows} == {len(heading)}


def test_c6_a_nan_of_an_iteration_is_the_word(orch: Orch) -> None:
    rows = list(
        csv.DictReader(
            io.StringIO(
                orch("report", "--format", "csv", "--per", "iteration", "--where", "dtype=float16").stdout
            )
        )
    )
    assert {row["loss"] for row in rows} == {"NaN"}
    assert {
        row["freed_bytes"]
        for row in csv.DictReader(
            io.StringIO(orch("report", "cpu-quick", "--format", "csv", "--per", "iteration").stdout)
        )
    } == {""}


def test_a_cell_is_the_median_of_its_jobs(store: Store, sql: Sql) -> None:
    report = build_report(store, ReportRequest("gpu-full"))
    for summary in report.summaries:
        cell = summary.jobs[0].values["cell"]
        medians = [
            row[0]
            for row in sql(f"""
            SELECT r.offload_s_median FROM job j JOIN job_result r USING (job_id)
            WHERE j.cell = '{cell}' AND j.status = 'ok'""")
        ]
        found = summary.metrics["offload_s_median"]
        assert found.median == statistics.median(medians)
        assert (found.least, found.greatest, found.count) == (min(medians), max(medians), len(medians))


def test_the_best_setting_is_that_of_the_view(store: Store, sql: Sql) -> None:
    [best] = build_report(store, ReportRequest("gpu-full")).answers.largest
    [(pin, blocking, freeze, backend)] = sql(
        "SELECT pin_memory, non_blocking, gc_freeze, pin_backend FROM best_setting WHERE hidden_dim = 16384"
    )
    expected = [n for n, v in (("pin_memory", pin), ("non_blocking", blocking), ("gc_freeze", freeze)) if v]
    assert best.setting == ", ".join(expected) + ("" if backend == "default" else f", pin_backend {backend}")


def test_flagged_jobs_decide_nothing_but_are_shown(orch: Orch) -> None:
    text = orch("report").stdout
    assert "overlapped" in text
    assert "link drifted" in text
    alone = orch("report", "--where", "overlapped=true").stdout
    assert "no valid job to name a best setting from" in alone


def test_jobs_without_figures_are_named_with_their_reason(orch: Orch) -> None:
    text = orch("report").stdout
    assert "skipped: " in text
    assert "predicted 310.2 GB of device memory" in text
    assert "failed (states_changed): " in text
    assert "4 jobs without figures" in text
    assert "not ended yet: 1 pending, 1 running" in text


def test_axes_that_do_not_vary_are_named_once(orch: Orch) -> None:
    result = orch("report", "cpu-quick", "--format", "markdown")
    assert "in every row: model linear, hidden_dim 256" in result.stdout
    assert "hidden_dim" not in table_rows(result.stdout)[0]


def test_on_a_cpu_freed_is_not_applicable(orch: Orch) -> None:
    text = orch("report", "cpu-quick").stdout
    assert "freed bytes are not applicable" in text
    assert " n/a " in text
    assert "of link" not in text


def test_where_keeps_what_satisfies_every_condition(orch: Orch, sql: Sql) -> None:
    rows = json.loads(
        orch("report", "--json", "--where", "hidden_dim>=8192", "--where", "pin_memory=true").stdout
    )
    [(expected,)] = sql("SELECT COUNT(*) FROM job WHERE sweep_id=2 AND hidden_dim >= 8192 AND pin_memory")
    assert len(rows) == expected


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (["status!=ok"], 6), (["status=failed,skipped"], 2), (["hidden_dim=4096,8192", "status=ok"], 36),
        (["pin_memory_then=null"], 64), (["offload_s_median<0.1"], 3), (["env.NOTE=null"], 64),
        (["hidden_dim==1024", "num_nodes=2"], 1), (["gc_freeze=yes"], 9),
        (["dtype=bf16", "status=ok"], 58), (["dtype=torch.float16"], 1), (["host>3"], 0),
    ],
)  # fmt: skip
def test_where_conditions(orch: Orch, conditions: list[str], count: int) -> None:
    arguments = [part for condition in conditions for part in ("--where", condition)]
    assert len(json.loads(orch("report", "--json", *arguments).stdout)) == count


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("hiden_dim=1", "did you mean hidden_dim"),
        ("hidden_dim", "is not a condition"),
        ("hidden_dim>x", "which is no number"),
        ("hidden_dim=x", "which is no number"),
        ("hidden_dim=", "compares with nothing"),
        ("hidden_dim=1,", "compares with nothing"),
        ("pin_memory=maybe", "pin_memory is true or false"),
        ("1=1; DROP TABLE job", "is not a condition"),
        ("__class__=1", "is no column of a job"),
        ("PIN_MEMORY=yes", "did you mean pin_memory"),
        ("hidden-dim=1", "did you mean hidden_dim?"),
        ("hidden_dim=>1024", "write axis=value, or one of"),
        ("hidden_dim=1024 and pin_memory=yes", "each has a --where of its own"),
        ("dtype>3", "dtype has no order"),
        ("offload_s=1", "did you mean offload_s_median"),
    ],
)
def test_where_refuses_what_it_cannot_read(orch: Orch, condition: str, message: str) -> None:
    result = orch("report", "--where", condition)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_where_knows_a_cell_by_its_first_letters_and_states_by_any_name(orch: Orch) -> None:
    def cells(condition: str) -> set[str]:
        report = orch("report", "known_faults", "--db", SHIPPED, "--json", "--where", condition)
        return {row["cell"][3:9] for row in json.loads(report.stdout)}

    assert cells("cell=4cac54") == {"4cac54"}
    assert cells("cell=4cac54,v1:190ef6") == {"4cac54", "190ef6"}
    assert cells("included_state=keep_lp_params") == {"190ef6"}
    assert cells("included_state=lp_grads+contiguous_grad_buffer+hp_params+optim_states") == {"190ef6"}
    assert len(cells("cell!=4cac54")) == 5


@pytest.mark.parametrize(
    ("condition", "there_are"),
    [
        ("hidden_dim=99", "no job has hidden_dim=99; there are: 1024"),
        ("dtype=float8", "no job has dtype=float8; there are: bfloat16"),
        ("status=okay", "no job has status=okay; there are: failed, ok"),
        ("included_state=lp_grads", "there are: all, keep_lp_params, lp_params"),
    ],
)
def test_where_nothing_is_found_the_report_says_what_there_is(
    orch: Orch, condition: str, there_are: str
) -> None:
    shown = orch("report", "known_faults", "--db", SHIPPED, "--where", condition)
    assert shown.exit_code == 0
    assert there_are in shown.stdout


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--by", "PIN_MEMORY", "did you mean pin_memory"),
        ("--by", "pin-memory", "did you mean pin_memory"),
        ("--by", "offload_s_median", "it is no axis; --metric shows it"),
        ("--by", "cell", "a row a cell is what there is without --by"),
        ("--by", "", "it names nothing"),
        ("--metric", "pin_memory", "it is an axis"),
        ("--metric", "offload", "did you mean offload_s_median"),
        ("--metric", ",", "it names nothing"),
    ],
)
def test_by_and_metric_refuse_what_is_not_theirs(orch: Orch, option: str, value: str, message: str) -> None:
    result = orch("report", option, value)
    assert result.exit_code == 2
    assert message in result.stderr


def test_by_takes_commas_and_blanks_alike(orch: Orch) -> None:
    commas = orch("report", "--by", "pin_memory,non_blocking").stdout
    assert orch("report", "--by", "pin_memory non_blocking").stdout == commas
    assert orch("report", "--by", "pin_memory", "--by", "non_blocking").stdout == commas


def test_a_where_value_is_never_run(orch: Orch, sql: Sql) -> None:
    assert json.loads(orch("report", "--json", "--where", "model=x' OR '1'='1").stdout) == []
    assert sql("SELECT COUNT(*) FROM job")[0][0] == 73


def test_by_combines_cells_and_says_over_what(orch: Orch) -> None:
    result = orch("report", "--by", "pin_memory,non_blocking", "--format", "markdown")
    assert "warning: rows combine jobs that differ in hidden_dim" in result.stdout
    rows = table_rows(result.stdout)
    assert rows[0][:3] == ["pin_memory", "non_blocking", "jobs"]
    assert len(rows) == 1 + 5


def test_metric_chooses_the_columns(orch: Orch) -> None:
    rows = table_rows(
        orch("report", "cpu-quick", "--metric", "offload_s_p95,ranks", "--format", "markdown").stdout
    )
    assert rows[0] == ["cell", "pin_memory", "non_blocking", "jobs", "offload_s_p95", "ranks"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--metric", "offlod_s"),
        ("--metric", "dtype"),
        ("--by", "hiden_dim"),
        ("--by", "dtype", "--per", "job"),
    ],
)
def test_unknown_axes_and_metrics_are_errors(orch: Orch, arguments: tuple[str, ...]) -> None:
    result = orch("report", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_layout_example_is_the_trial_table(orch: Orch) -> None:
    text = orch("report", "cpu-quick", "--layout", "example", "--format", "markdown").stdout
    heading, *rows = table_rows(text)
    assert heading == [
        "trial",
        "pin_memory=0 non_blocking=0",
        "pin_memory=0 non_blocking=1",
        "pin_memory=1 non_blocking=0",
        "pin_memory=1 non_blocking=1",
    ]
    assert [row[0] for row in rows] == ["1", "2"]
    assert all(re.fullmatch(r"0\.\d+ / 0\.\d+", cell) for row in rows for cell in row[1:])


def test_layout_example_loses_no_trial(orch: Orch, sql: Sql) -> None:
    rows = json.loads(orch("report", "--layout", "example", "--json").stdout)
    statuses = [
        row[name] for row in rows for name in row if name.endswith("_status") and row[name] is not None
    ]
    assert len(statuses) == sql("SELECT COUNT(*) FROM job WHERE sweep_id = 2")[0][0]


def test_environments_are_never_averaged_together(tmp_path: Path) -> None:
    from orchestrator.store import open_store

    writer = Writer(tmp_path / "two.db")
    writer.sweep("two", [JobPlan(axes(), repeat, environment_id=1 + repeat % 2) for repeat in (1, 2, 3, 4)])
    writer.close()
    with open_store(str(tmp_path / "two.db"), readonly=True) as store:
        report = build_report(store, ReportRequest(by=("dtype",)))
        columns, rows = people_table(report)
    assert [len(summary.jobs) for summary in report.summaries] == [2, 2]
    assert [row[columns.index("environment")] for row in rows] == ["B", "A"]
    assert "different environments" in " ".join(sentence for _, sentence in report.answers.things)


def test_things_to_know_come_from_the_rows(store: Store) -> None:
    things = dict(build_report(store, ReportRequest("gpu-full")).answers.things)
    assert set(things) == {
        "states_changed",
        "collection",
        "cold_pinning",
        "pinning_pays",
        "rounding",
        "overlapped",
        "probe_drift",
        "skipped_steps",
    }
    assert "gc_freeze takes it from 0.18" in things["collection"]
    assert "68.7 GB of host memory a rank for 34.4 GB" in things["rounding"]


def test_a_file_appears_whole(orch: Orch, tmp_path: Path) -> None:
    target = tmp_path / "report.csv"
    assert orch("report", "--format", "csv", "-o", target).exit_code == 0
    assert target.read_text() == orch("report", "--format", "csv").stdout
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]


def test_a_file_that_cannot_be_written_is_an_error(orch: Orch, tmp_path: Path) -> None:
    result = orch("report", "-o", tmp_path / "no" / "report.txt")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_parquet_of_the_report(orch: Orch, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert orch("report", "--format", "parquet", "-o", tmp_path / "r.parquet").exit_code == 0
    assert len(pd.read_parquet(tmp_path / "r.parquet")) == 65


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_golden_report(orch: Orch, name: str) -> None:
    golden = Path(__file__).parent / "golden" / f"report_cpu.{name}.txt"
    assert orch("report", "cpu-quick", "--format", name).stdout == golden.read_text()


def test_plots_are_written_for_a_paper(orch: Orch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = orch("report", "--plots", tmp_path / "plots")
    assert done.exit_code == 0, done.output
    names = ["cold_and_warm", "offload_by_size", "reload_by_size", "scaling"]
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        f"{name}.{ending}" for name in names for ending in ("png", "svg")
    ]
    assert "link, pinned: 55.2 GB/s" in (tmp_path / "plots" / "offload_by_size.svg").read_text()


def test_a_plot_joins_cells_of_one_context_and_names_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from orchestrator.render.plots import write_plots
    from orchestrator.store import open_store

    writer = Writer(tmp_path / "r.db")
    sizes = [JobPlan(axes(hidden_dim=size)) for size in (2048, 4096, 8192)]
    writer.sweep("s", [*sizes, JobPlan(axes(hidden_dim=4096, zero_stage=2))])
    writer.db.execute("UPDATE job_result SET offload_s_median = 100 WHERE job_id = 4")
    writer.close()
    with open_store(str(tmp_path / "r.db"), readonly=True) as store:
        write_plots(build_report(store, ReportRequest()), tmp_path / "plots")
    drawn = (tmp_path / "plots" / "offload_by_size.svg").read_text()
    ticks = [float(text) for text in re.findall(r"<text[^>]*>([\d.]+)</text>", drawn)]
    assert ticks
    assert max(ticks) < 100  # the other stage's time is in no curve
    assert "zero_stage 3" in drawn


def test_a_leak_is_not_seen_on_a_cpu(tmp_path: Path) -> None:
    from orchestrator.store import open_store

    writer = Writer(tmp_path / "leak.db")
    writer.sweep("leak", [JobPlan(axes(), 1, environment_id=2), JobPlan(axes(), 2, environment_id=1)])
    writer.db.execute("UPDATE job_result SET leak_bytes = 5e6")
    writer.close()
    with open_store(str(tmp_path / "leak.db"), readonly=True) as store:
        things = dict(build_report(store, ReportRequest()).answers.things)
    assert things["leak"].startswith("1 job ")


@pytest.mark.parametrize("metrics", [("offload_gbps",), ("offload_s_p95", "offload_gbps")])
def test_a_metric_asked_for_by_name_stays_where_it_has_no_figure(
    tmp_path: Path, metrics: tuple[str, ...]
) -> None:
    writer = Writer(tmp_path / "r.db")
    writer.sweep("s", [JobPlan(axes())])
    writer.db.execute("UPDATE job_result SET offload_gbps = NULL")
    writer.close()
    with open_store(str(tmp_path / "r.db"), readonly=True) as store:
        columns, rows = people_table(build_report(store, ReportRequest("s", metrics=metrics)))
    assert [row[columns.index("offload_gbps")] for row in rows] == ["n/a"]
