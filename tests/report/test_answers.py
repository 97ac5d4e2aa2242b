"""The report's first lines and its things to know, where they could mislead."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from orchestrator.analysis.report import Report, ReportRequest, build_report, job_table
from orchestrator.render.report import Style, people_table, write_example, write_rows, write_summaries
from orchestrator.render.sentences import best_lines, percent, trouble_lines
from orchestrator.store import open_store
from tests.fixtures.make_results import JobPlan, Writer, axes

Make = Callable[..., AbstractContextManager[Report]]


@pytest.fixture
def report_of(tmp_path: Path) -> Make:
    """The report of these jobs, whose results were changed by an UPDATE or two."""

    @contextmanager
    def make(plans: Sequence[JobPlan], *updates: str, in_spec: bool = True) -> Iterator[Report]:
        """``in_spec`` is that of the first job."""
        writer = Writer(tmp_path / "r.db")
        writer.sweep("s", plans)
        for update in updates:
            writer.db.execute(f"UPDATE job_result SET {update}")
        writer.db.execute("UPDATE job SET in_spec = ? WHERE job_id = 1", (in_spec,))
        writer.close()
        with open_store(str(tmp_path / "r.db"), readonly=True) as store:
            yield build_report(store, ReportRequest("s"))

    return make


def things(report: Report) -> dict[str, str]:
    return dict(report.answers.things)


def test_one_setting_alone_is_not_called_the_best(report_of: Make) -> None:
    with report_of([JobPlan(axes(dtype=dtype)) for dtype in ("bfloat16", "float32")]) as report:
        text = best_lines(report)[0]
    assert text.startswith("only valid setting: pin_memory → ")
    assert "dtype bfloat16" in text  # of which question it is the answer


def test_a_best_setting_of_single_jobs_says_so(report_of: Make) -> None:
    with report_of([JobPlan(axes(non_blocking=value)) for value in (True, False)]) as report:
        lines = best_lines(report)
    assert lines[0].startswith("best setting: ")
    assert any("only repeats can tell" in line for line in lines)


def test_settings_that_cannot_be_told_apart_are_named(report_of: Make) -> None:
    plans = [JobPlan(axes(non_blocking=value), repeat) for repeat in (1, 2) for value in (True, False)]
    same = "reload_s_median = 1, offload_s_median = 1"
    with report_of(plans, same, "offload_s_median = 2 WHERE job_id = 4") as report:
        assert any("overlap with: " in line for line in best_lines(report))
    apart = "SELECT 1 + (non_blocking = 0) FROM job WHERE job.job_id = job_result.job_id"
    with report_of(plans, same, f"offload_s_median = ({apart})") as report:
        assert best_lines(report)[0].startswith("best setting: pin_memory, non_blocking ")
        assert not any("overlap" in line for line in best_lines(report))


def test_a_faster_cell_with_a_flag_is_named_beside_the_best(report_of: Make) -> None:
    plans = [JobPlan(axes(non_blocking=False)), JobPlan(axes(non_blocking=True), overlapped=True)]
    with report_of(plans, "offload_s_median = 1.0 / job_id") as report:
        cell = report.jobs.jobs[1].cell6
        assert f"  faster, but flagged and so left out: {cell} (overlapped)" in best_lines(report)


def test_why_no_setting_is_the_best_is_said(report_of: Make) -> None:
    plans = [JobPlan(axes(non_blocking=value), overlapped=True) for value in (True, False)]
    with report_of(plans) as report:
        [line] = best_lines(report)
    assert line.endswith("from: all 2 with figures carry a flag (overlapped)")
    with report_of([JobPlan(axes(), status="failed")]) as report:
        assert best_lines(report) == ["no valid job to name a best setting from"]


@pytest.mark.parametrize(
    ("pinned", "drift", "flags"),
    [(True, 0.09, ()), (True, 0.12, ("link drifted",)), (False, 0.2, ()), (False, 0.4, ("link drifted",))],
)
def test_pageable_links_may_scatter_further(
    report_of: Make, pinned: bool, drift: float, flags: tuple[str, ...]
) -> None:
    with report_of([JobPlan(axes(pin_memory=pinned), probe_drift_share=drift)]) as report:
        assert report.jobs.jobs[0].flags() == flags


def test_contention_on_purpose_is_no_flag(report_of: Make) -> None:
    with report_of([JobPlan(axes(contention=2), overlapped=True)]) as report:
        assert report.jobs.jobs[0].flags() == ()
        assert "overlapped" not in things(report)


def test_faster_than_the_link_is_flagged(report_of: Make) -> None:
    with report_of([JobPlan(axes())], "reload_link_share = 1.2, is_valid = FALSE") as report:
        assert report.jobs.jobs[0].flags() == ("faster than the link",)
        assert "beyond_link" in things(report)


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0"), (0.003, "<1"), (0.0099, "<1"), (0.01, "1"), (0.97, "97"), (1.0, "100")]
)
def test_a_small_share_is_not_nothing(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_known_direction_is_shown_beside_an_unknown_one(report_of: Make) -> None:
    change = "offload_link_share = NULL, link_down_gbps = NULL, reload_link_share = 0.75, pinned_bytes = 11"
    with report_of([JobPlan(axes())], change) as report:
        columns, [row] = people_table(report)
        assert row[columns.index("of link")] == "– / 75 %"
        assert row[columns.index("pinned host")] == "<1 kB"
        assert things(report)["unprobed"].startswith("1 job ")


def test_what_copies_nothing_has_no_share_of_the_link(report_of: Make) -> None:
    plans = [JobPlan(axes(included_state=states)) for states in ("all", "contiguous_grad_buffer")]
    nothing = "copied_bytes = 0, offload_link_share = 0, reload_link_share = 0 WHERE job_id = 2"
    with report_of(plans, nothing) as report:
        columns, rows = people_table(report)
    whole, freed = (row[columns.index("of link")] for row in rows)
    assert str(whole).endswith(" %")
    assert freed == "–"


def test_bytes_that_differ_once_are_told_from_bytes_that_always_do(report_of: Make) -> None:
    plans = [JobPlan(axes(dtype=dtype)) for dtype in ("bfloat16", "float32")]
    with report_of(
        plans, "bytes_match = FALSE, predicted_freed_bytes = freed_bytes", "freed_bytes = 0 WHERE job_id = 2"
    ) as report:
        known = dict(report.answers.things)
    assert report.jobs.jobs[0].name in known["bytes_differ_once"]
    assert report.jobs.jobs[1].name in known["bytes_differ"]


def test_an_offload_that_is_mostly_not_copying_is_said(report_of: Make) -> None:
    with report_of([JobPlan(axes())], "offload_link_share = 0.01, offload_s_median = 0.2") as report:
        assert "it takes 0.200 s, the raw link 2.00 ms" in things(report)["not_copying"]
    with report_of([JobPlan(axes())], "offload_link_share = 0.9") as report:
        assert "not_copying" not in things(report)


def test_what_every_row_has_in_common_holds_for_jobs_without_figures_too(report_of: Make) -> None:
    plans = [JobPlan(axes(dtype="float16"), status="failed"), JobPlan(axes())]
    with report_of(plans) as report:
        summaries, rows = io.StringIO(), io.StringIO()
        write_summaries(report, Style("table"), summaries)
        write_rows(report, *job_table(report), Style("table"), rows)
    assert "in every row: model linear" in rows.getvalue()
    assert "dtype bfloat16" in summaries.getvalue()
    assert "dtype bfloat16" not in rows.getvalue()


def test_blocks_of_the_example_do_not_contradict_what_every_row_has(report_of: Make) -> None:
    odd = axes(nlayers=9, ds='{"steps_per_print": 5}')
    with report_of([JobPlan(odd, status="failed"), JobPlan(axes())]) as report:
        text = io.StringIO()
        write_example(report, Style("table"), text)
    every = next(line for line in text.getvalue().splitlines() if line.startswith("in every row"))
    assert "nlayers" not in every
    assert "nlayers 9, ds.steps_per_print 5" in text.getvalue()
    assert "ds.steps_per_print default" in text.getvalue()
    assert "inactive" not in text.getvalue()


@pytest.mark.parametrize(("warm", "is_named"), [(5, False), (9, False), (10, True), (100, True)])
def test_a_slope_through_few_iterations_is_no_drift(report_of: Make, warm: int, is_named: bool) -> None:
    change = f"warm_iterations = {warm}, offload_s_median = 1, offload_drift_s = 0.05"
    with report_of([JobPlan(axes())], change) as report:
        assert ("slowing" in things(report)) is is_named


def test_a_cell_that_the_sweep_file_dropped_is_not_the_best(report_of: Make) -> None:
    plans = [JobPlan(axes(non_blocking=value)) for value in (True, False)]
    drop = "is_valid = TRUE, offload_s_median = job_id"
    with report_of(plans, drop) as report:
        assert best_lines(report)[0].startswith("best setting: pin_memory, non_blocking ")
    with report_of(plans, drop, in_spec=False) as report:
        cell = report.jobs.jobs[0].cell6
        assert best_lines(report)[0].startswith("only valid setting: pin_memory →")
        assert f"  faster, but flagged and so left out: {cell} (not in spec)" in best_lines(report)


def test_how_a_cell_was_measured_is_no_part_of_the_question(report_of: Make) -> None:
    plans = [
        JobPlan(axes(non_blocking=False, iteration=9, warmup=2)),
        JobPlan(axes(non_blocking=True, iteration=11, instrumented=1)),
        JobPlan(axes(non_blocking=True, iteration=12)),
    ]
    with report_of(plans, "offload_s_median = 1.0 / job_id, reload_s_median = 1") as report:
        [best] = report.answers.best
    assert (best.setting, best.settings, best.jobs) == ("pin_memory, non_blocking", 2, 1)
    assert best.offload_s == pytest.approx(1 / 3)  # of the faster one of its two cells
    assert best.as_good == ()


def test_a_setting_does_not_overlap_with_itself(report_of: Make) -> None:
    plans = [JobPlan(axes(checksums=value)) for value in (True, False)]
    with report_of(plans, "offload_s_median = 1, reload_s_median = 1") as report:
        [best] = report.answers.best
        assert best_lines(report)[0].startswith("only valid setting: ")
    assert (best.settings, best.as_good) == (1, ())


def test_every_question_of_the_shipped_sweeps_is_one_of_the_view() -> None:
    for path in sorted((Path(__file__).parents[2] / "docs" / "data").glob("*.db")):
        with open_store(str(path), readonly=True) as store:
            _, rows = store.sql("SELECT sweep, COUNT(*) FROM best_setting GROUP BY sweep")
            for sweep, count in rows:
                assert len(build_report(store, ReportRequest(str(sweep))).answers.best) == count, sweep


@pytest.mark.parametrize("changed", [{}, {"instrumented": 1, "iteration": 12}])
def test_what_a_frozen_heap_saves_is_seen_however_it_was_measured(
    report_of: Make, changed: dict[str, int]
) -> None:
    plans = [JobPlan(axes(gc_freeze=False, **changed)), JobPlan(axes(gc_freeze=True))]
    with report_of(plans, "offload_s_median = 1.0 / job_id") as report:
        assert "gc_freeze takes it from 1.00 s to 0.500 s" in things(report)["collection"]


def test_a_pageable_offload_is_not_said_to_be_no_copying(report_of: Make) -> None:
    with report_of([JobPlan(axes(pin_memory=False))], "offload_link_share = 0.1") as report:
        assert "not_copying" not in things(report)
    with report_of([JobPlan(axes(gc_freeze=True))], "offload_link_share = 0.1") as report:
        assert "not_copying" not in things(report)  # the advice is taken already


def test_the_offload_that_is_not_copying_is_its_cells_median(report_of: Make) -> None:
    plans = [JobPlan(axes(), repeat) for repeat in (1, 2, 3)]
    with report_of(plans, "offload_link_share = 0.1, offload_s_median = job_id * job_id") as report:
        assert "it takes 4.00 s, the raw link 0.400 s" in things(report)["not_copying"]


@pytest.mark.parametrize(
    ("first", "cycles"), [(3.5, "2 cycles"), (3.0, "2 cycles"), (1.5, "1 cycle"), (5.2, "4 cycles")]
)
def test_pinning_has_paid_when_the_cycles_measured_with_it_took_no_longer_together(
    report_of: Make, first: float, cycles: str
) -> None:
    """Cycles of 1 s after a first one of ``first`` against cycles of 2 s after one of 2.5 s."""
    plans = [JobPlan(axes(pin_memory=True)), JobPlan(axes(pin_memory=False))]
    with report_of(
        plans,
        "cold_pinning_s = 3, reload_s_median = 0, offload_s_median = 1, reload_cold_s = 0,"
        f" offload_cold_s = {first}",
        "cold_pinning_s = 1, offload_s_median = 2, offload_cold_s = 2.5 WHERE job_id = 2",
    ) as report:
        assert things(report)["pinning_pays"] == f"pinning has paid for itself after {cycles}"


def test_a_failed_job_is_named_by_two_axes_that_are_new_together(report_of: Make) -> None:
    plans = [
        JobPlan(axes(dtype="float16", non_blocking=False)),
        JobPlan(axes(dtype="bfloat16", non_blocking=True)),
        JobPlan(axes(dtype="float16", non_blocking=True), status="failed"),
        JobPlan(axes(dtype="bfloat16", non_blocking=False), status="cancelled"),
    ]
    with report_of(plans) as report:
        failed, cancelled = trouble_lines(report)
    assert "(dtype float16, non_blocking yes): " in failed
    assert "dtype" not in cancelled


def test_values_that_there_are_instead_stand_in_order(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r.db")
    writer.sweep("s", [JobPlan(axes(hidden_dim=size)) for size in (16384, 2048, 8192)])
    writer.close()
    with open_store(str(tmp_path / "r.db"), readonly=True) as store:
        sizes = build_report(store, ReportRequest("s", where=("hidden_dim=1",)))
        cells = build_report(store, ReportRequest("s", where=("cell=zz",)))
        every = build_report(store, ReportRequest("s"))
    assert sizes.jobs.why_none == ("no job has hidden_dim=1; there are: 2048, 8192, 16384",)
    assert set(cells.jobs.why_none[0].partition("there are: ")[2].split(", ")) == {
        job.cell6 for job in every.jobs.jobs
    }
