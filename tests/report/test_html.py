"""The HTML report as text: self-contained, safe, complete without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from orchestrator.analysis.page import page_data
from orchestrator.analysis.report import ReportRequest, build_report
from orchestrator.render.html import safe_json
from orchestrator.store import Store, open_store
from tests.fixtures.make_results import JobPlan, Writer, axes

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

Orch = Callable[..., Result]
Sql = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    from click.testing import CliRunner

    from orchestrator.cli.main import main

    target = tmp_path_factory.mktemp("html") / "report.html"
    done = CliRunner().invoke(main, ["report", "--db", str(results), "--format", "html", "-o", str(target)])
    assert done.exit_code == 0, done.output
    return target.read_text()


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)


def test_the_page_asks_for_nothing_from_the_network(page: str) -> None:
    assert "default-src 'none'" in page
    markup = without_scripts(page)
    assert not re.search(r"\b(?:src|href)=[\"'](?!#)", markup)
    assert "@import" not in page
    assert "url(http" not in page


def test_every_job_is_in_the_page_with_the_database_s_numbers(page: str, sql: Sql) -> None:
    jobs = data_of(page)["jobs"]
    expected = sql("""
        SELECT j.status, r.offload_s_median, r.reload_s_median, r.copied_bytes FROM job j
        LEFT JOIN job_result r USING (job_id) WHERE j.sweep_id = 2 ORDER BY j.position""")
    columns = (jobs["status"], jobs["offload_s_median"], jobs["reload_s_median"], jobs["copied_bytes"])
    assert list(zip(*columns, strict=True)) == expected


def test_a_label_is_never_markup(page: str) -> None:
    assert "<script>alert(1)" not in page
    assert "=1+1|<script>alert(1)</script>`" in data_of(page)["jobs"]["env.NOTE"]


def test_answers_failures_and_environment_need_no_script(page: str) -> None:
    markup = without_scripts(page)
    for part in (
        "best setting",
        "0.667 s",
        "93 % of the link",
        "68.7 GB",
        "8 things to know",
        "Jobs without figures",
        "predicted 310.2 GB",
        "NVIDIA H200",
        "2.11.0+cu130",
    ):
        assert part in markup


def test_what_is_embedded_is_capped(page: str) -> None:
    data = data_of(page)
    assert len(data["iterations"]) <= 160
    assert len(data["memory"]) <= 24
    assert all(len(one["at_s"]) <= 400 for one in data["memory"])


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028", "&lt;"])
def test_json_cannot_leave_its_script_element(text: str) -> None:
    written = safe_json({"x": text})
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == {"x": text}


def test_nonfinite_numbers_are_words() -> None:
    assert json.loads(safe_json([float("nan"), float("-inf"), 1.5])) == ["NaN", "-inf", 1.5]


@pytest.mark.parametrize("sweep", ["cpu-quick", "gpu-full"])
def test_every_sweep_renders(orch: Orch, tmp_path: Path, sweep: str) -> None:
    assert orch("report", sweep, "--format", "html", "-o", tmp_path / "r.html").exit_code == 0
    assert (tmp_path / "r.html").stat().st_size < 8_000_000


def test_a_page_of_a_cpu_has_no_speed_and_no_freed_bytes(store: Store) -> None:
    report = build_report(store, ReportRequest("cpu-quick"))
    data: Any = page_data(store, report)
    assert not {"offload_gbps", "reload_gbps", "freed_bytes"} & set(data["jobs"])
    assert set(data["cells"]["offload_gbps"]) == {None}
    assert all(data["cells"]["offload_s_median"])


def test_a_filter_that_nothing_satisfies_still_renders(orch: Orch, tmp_path: Path) -> None:
    done = orch("report", "--where", "hidden_dim=7", "--format", "html", "-o", tmp_path / "r.html")
    assert done.exit_code == 0
    assert "no valid job" in (tmp_path / "r.html").read_text()


def test_instrumented_iterations_split_the_time_and_long_jobs_are_thinned(tmp_path: Path) -> None:
    from orchestrator.analysis.page import ITERATIONS

    writer = Writer(tmp_path / "long.db")
    writer.sweep("long", [JobPlan(axes(instrumented=2, iteration=1000, hidden_dim=8192))])
    writer.close()
    with open_store(str(tmp_path / "long.db"), readonly=True) as store:
        data: Any = page_data(store, build_report(store, ReportRequest()))
    [split] = data["splits"]
    assert split["parts"]["offload_gc_s"] == pytest.approx(0.165)
    [one] = data["iterations"]
    assert len(one["iteration"]) == ITERATIONS
    assert one["kind"][0] == "cold"
    assert one["iteration"] == sorted(set(one["iteration"]))


def page_of(path: Path, plans: list[JobPlan], *updates: str) -> Any:
    """What the page of a sweep of these jobs embeds."""
    writer = Writer(path)
    writer.sweep("s", plans)
    for update in updates:
        writer.db.execute(f"UPDATE job_result SET {update}")
    writer.close()
    with open_store(str(path), readonly=True) as opened:
        return page_data(opened, build_report(opened, ReportRequest()))


def test_cells_that_differ_in_how_long_they_were_measured_lie_on_one_curve(tmp_path: Path) -> None:
    plans = [
        JobPlan(axes(hidden_dim=2048, iteration=9)),
        JobPlan(axes(hidden_dim=4096, iteration=12, instrumented=1)),
        JobPlan(axes(hidden_dim=4096, dtype="float32")),
    ]
    cells = page_of(tmp_path / "r.db", plans)["cells"]
    assert cells["context"] == ["dtype bfloat16", "dtype bfloat16", "dtype float32"]


def test_of_many_axes_a_context_says_what_is_otherwise_than_in_most_jobs(tmp_path: Path) -> None:
    other = {"dtype": "float32", "zero_stage": 2, "optimizer": "torch_adam", "param_groups": 3}
    plans = [JobPlan(axes()), *(JobPlan(axes(**{name: value})) for name, value in other.items())]
    data = page_of(tmp_path / "r.db", plans)
    assert data["cells"]["context"] == [
        "as most jobs", "dtype float32", "zero_stage 2", "optimizer torch_adam", "param_groups 3"
    ]  # fmt: skip
    assert data["usual"] == "dtype bfloat16, zero_stage 3, optimizer adam, param_groups 1"


def test_no_two_bars_of_the_time_split_have_one_name(tmp_path: Path) -> None:
    """Plotly would stack them: one bar as long as both."""
    plans = [JobPlan(axes(zero_stage=stage, instrumented=2)) for stage in (2, 3)]
    labels = [split["label"] for split in page_of(tmp_path / "r.db", plans)["splits"]]
    assert len(labels) == len(set(labels)) == 2


def test_the_pageable_link_is_of_jobs_that_torch_pins_nothing_for(tmp_path: Path) -> None:
    plans = [
        JobPlan(axes(pin_memory=pin, non_blocking=blocking))
        for pin, blocking in ((True, True), (False, False), (False, True))
    ]
    mixed = "link_down_gbps = 23, link_up_gbps = 11 WHERE job_id = 3"
    pageable = "link_down_gbps = 17, link_up_gbps = 8 WHERE job_id = 2"
    links = page_of(tmp_path / "r.db", plans, pageable, mixed)["links"]
    assert [link["kind"] for link in links] == ["pinned", "pageable"]
    assert (links[1]["down_gbps"], links[1]["up_gbps"]) == (17, 8)
