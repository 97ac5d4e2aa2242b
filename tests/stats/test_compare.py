"""Verdicts on real databases: what may be said, and what may not."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.compare import CompareOptions, Comparison, compare
from orchestrator.analysis.sides import parse_side, read_only, read_side
from orchestrator.analysis.verdicts import Verdict
from orchestrator.errors import OrchError, SpecError
from orchestrator.render.comparison import render_comparison
from tests.stats.databases import Database
from tests.stats.golden_files import assert_golden

BIG = {"hidden_dim": 8192, "nlayers": 8, "pin_memory": True, "non_blocking": True}
SMALL = {**BIG, "hidden_dim": 4096}
PAGEABLE = {**BIG, "pin_memory": False, "non_blocking": False}


def times(seed: int, scale: float, repeats: int, noise: float = 0.01) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    factors = np.exp(rng.normal(0, noise, (repeats, 2)))
    return [{"offload_s_median": scale * x, "reload_s_median": 0.9 * scale * y} for x, y in factors.tolist()]


Fill = Callable[[Database, int, int], None]


def two_sweeps(
    path: Path, fill_a: Fill, fill_b: Fill, b_stack: Mapping[str, object] = {}, **options: object
) -> Comparison:
    database = Database(path / "orch.db")
    for name, fill, stack in (("before", fill_a, {}), ("after", fill_b, b_stack)):
        fill(database, database.sweep(name), database.environment(**{"kernel": name, **stack}))
    database.close()
    sides = [read_side(parse_side(name, str(path / "orch.db")), read_only) for name in ("before", "after")]
    return compare(sides[0], sides[1], CompareOptions(**options))  # type: ignore[arg-type]


def simple(seed: int, scale: float = 1.0, repeats: int = 5, noise: float = 0.01) -> Fill:
    def fill(database: Database, sweep: int, environment: int) -> None:
        for number, (axes, seconds) in enumerate(((SMALL, 0.222), (BIG, 0.35), (PAGEABLE, 3.61))):
            factor = scale if axes is PAGEABLE else 1.0
            database.jobs(sweep, environment, axes, times(seed + number, seconds * factor, repeats, noise))

    return fill


def test_one_cell_slower_by_a_tenth_is_worse_and_the_others_same(tmp_path: Path) -> None:
    found = two_sweeps(tmp_path, simple(1), simple(11, 1.1))
    verdicts = {(c.label, c.metric): c.verdict for c in found.changes}
    slow = "pin_memory=false non_blocking=false hidden_dim=8192"
    assert verdicts[slow, "offload_s_median"] is Verdict.WORSE
    assert verdicts[slow, "reload_s_median"] is Verdict.WORSE
    assert found.counts() == {
        Verdict.WORSE: 1, Verdict.BETTER: 0, Verdict.INCONCLUSIVE: 0, Verdict.SAME: 2,
    }  # fmt: skip
    assert found.is_worse_by(0.05)
    assert not found.is_worse_by(0.15)


def test_faster_is_better_and_does_not_fail(tmp_path: Path) -> None:
    found = two_sweeps(tmp_path, simple(1), simple(11, 0.8))
    assert found.counts()[Verdict.BETTER] == 1
    assert not found.is_worse_by(0.0)


def test_lower_bandwidth_is_worse(tmp_path: Path) -> None:
    def bandwidth(gbps: float) -> Fill:
        def fill(database: Database, sweep: int, environment: int) -> None:
            rows = [{"offload_gbps": gbps * (1 + k / 1000), "offload_s_median": 1.0} for k in range(5)]
            database.jobs(sweep, environment, BIG, rows)

        return fill

    found = two_sweeps(tmp_path, bandwidth(50.0), bandwidth(40.0), metrics=["offload_gbps"])
    assert [c.verdict for c in found.changes] == [Verdict.WORSE]
    assert found.changes[0].worse_share == pytest.approx(0.25)


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_fewer_than_four_repeats_give_no_verdict_however_large_the_change(
    tmp_path: Path, repeats: int
) -> None:
    found = two_sweeps(tmp_path, simple(1), simple(11, 3.0, repeats))
    assert {c.verdict for c in found.changes} == {Verdict.INCONCLUSIVE}
    assert found.changes[0].reason == f"5 + {repeats} repeats, 4 a side are needed"
    assert not found.is_worse_by(0.0)
    out = io.StringIO()
    render_comparison(found, format="table", out=out, note=out)
    assert "no cell could be judged: more repeats are needed\n" in out.getvalue()


def test_many_axes_that_most_cells_share_are_said_once_and_a_narrow_terminal_gets_a_table() -> None:
    from tests.report.test_terminal import on_terminal, widest

    shipped = Path(__file__).parents[2] / "docs" / "data" / "h200-x2.db"
    text = on_terminal(shipped, "compare", "findings", "findings", columns=80, NO_COLOR="1")
    assert widest(text) <= 80
    assert "── 1 ──" not in text
    head, _, rows = text.partition("────")
    assert "unless a row says otherwise: included_state=all" in head
    assert "zero_stage=3" in head
    assert "zero_stage=3" not in rows
    assert "zero_stage=2" in rows
    assert "keep_lp_params" in rows  # a state set by its name


def test_noise_wider_than_the_margin_is_inconclusive_not_same(tmp_path: Path) -> None:
    found = two_sweeps(tmp_path, simple(1, noise=0.2), simple(11, noise=0.2))
    assert {c.verdict for c in found.changes} == {Verdict.INCONCLUSIVE}
    assert "wider than ±0.05" in found.changes[0].reason


def test_a_certain_change_within_the_margin_is_same(tmp_path: Path) -> None:
    found = two_sweeps(tmp_path, simple(1, noise=0.001), simple(11, 1.03, noise=0.001))
    assert {c.verdict for c in found.changes} == {Verdict.SAME}


def test_equal_bytes_are_same_and_other_bytes_worse(tmp_path: Path) -> None:
    def freed(factor: int) -> Fill:
        def fill(database: Database, sweep: int, environment: int) -> None:
            database.jobs(sweep, environment, BIG, [{"freed_bytes": 9_590_983_168}] * 4)
            database.jobs(sweep, environment, SMALL, [{"freed_bytes": 1_000_000_000 * factor}] * 4)

        return fill

    found = two_sweeps(tmp_path, freed(2), freed(1), metrics=["freed_bytes"])
    assert [c.verdict for c in found.changes] == [Verdict.SAME, Verdict.WORSE]


def test_flagged_jobs_are_left_out_counted_and_taken_on_request(tmp_path: Path) -> None:
    def flagged(database: Database, sweep: int, environment: int) -> None:
        rows = [{**row, "is_valid": k != 2, "overlapped": k == 2} for k, row in enumerate(times(3, 0.3, 5))]
        database.jobs(sweep, environment, BIG, rows)

    found = two_sweeps(tmp_path, simple(1), flagged)
    assert (found.left_out_a, found.left_out_b) == (0, 1)
    assert {c.repeats_b for c in found.changes} == {4}
    assert len(found.only_a) == 2
    (tmp_path / "orch.db").unlink()
    found = two_sweeps(tmp_path, simple(1), flagged, include_flagged=True)
    assert (found.left_out_b, found.changes[0].repeats_b) == (0, 5)


def test_a_metric_missing_in_a_job_is_inconclusive_for_that_metric_alone(tmp_path: Path) -> None:
    def holey(database: Database, sweep: int, environment: int) -> None:
        rows = times(3, 0.35, 5)
        rows[0]["reload_s_median"] = None
        database.jobs(sweep, environment, BIG, rows)

    found = two_sweeps(tmp_path, simple(1), holey)
    assert [c.verdict for c in found.changes] == [Verdict.SAME, Verdict.INCONCLUSIVE]
    assert found.changes[1].reason == "not measured, not finite or not positive in 1 job"


def test_nothing_in_common_is_an_error(tmp_path: Path) -> None:
    def other(database: Database, sweep: int, environment: int) -> None:
        database.jobs(sweep, environment, {**BIG, "nlayers": 2}, times(1, 0.1, 4))

    with pytest.raises(SpecError, match="no cell of before"):
        two_sweeps(tmp_path, simple(1), other)


def test_an_unknown_metric_is_an_error_that_lists_the_metrics(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'leak_bytes' is not a metric.*use step_s_median"):
        two_sweeps(tmp_path, simple(1), simple(2), metrics=["leak_bytes"])


def test_the_same_seed_gives_the_same_result(tmp_path: Path) -> None:
    first = two_sweeps(tmp_path, simple(1), simple(11, 1.1))
    (tmp_path / "orch.db").unlink()
    assert two_sweeps(tmp_path, simple(1), simple(11, 1.1)).changes == first.changes


def test_environment_differences_come_first_and_name_both_sides(tmp_path: Path) -> None:
    stack = {"deepspeed": "0.19.9", "variables": json.dumps({"OMP_NUM_THREADS": "2"}), "kernel": "before"}
    found = two_sweeps(tmp_path, simple(1), simple(11, 1.1), stack)
    out = io.StringIO()
    render_comparison(found, format="table", out=out, note=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "A = before, B = after"
    assert lines[1] == "environment differs: deepspeed 0.19.8 → 0.19.9"
    assert lines[2] == "environment differs: variables.OMP_NUM_THREADS 1 → 2"
    assert lines[3] == "3 cells: 2 same · 1 worse · 0 better · 0 inconclusive"


@pytest.mark.parametrize("format_", ["table", "markdown", "csv", "json"])
def test_output_is_as_recorded(tmp_path: Path, format_: str) -> None:
    def fewer(database: Database, sweep: int, environment: int) -> None:
        simple(11, 1.1)(database, sweep, environment)
        database.jobs(sweep, environment, {**BIG, "nlayers": 2}, times(5, 0.1, 2))

    def with_fewer(database: Database, sweep: int, environment: int) -> None:
        simple(1)(database, sweep, environment)
        database.jobs(sweep, environment, {**BIG, "nlayers": 2}, times(5, 0.1, 5))

    out, note = io.StringIO(), io.StringIO()
    found = two_sweeps(tmp_path, with_fewer, fewer, {"deepspeed": "0.19.9"})
    render_comparison(found, format=format_, out=out, note=note)
    assert_golden(f"compare.{format_}", note.getvalue() + out.getvalue())
    if format_ == "csv":
        rows = list(csv.DictReader(io.StringIO(out.getvalue())))
        assert [float(row["ratio"]) for row in rows] == [c.ratio for c in found.changes]
    if format_ == "json":
        assert json.loads(out.getvalue())["counts"]["worse"] == 1


@pytest.mark.parametrize(
    ("text", "database", "sweep"),
    [
        ("full", "default.db", "full"),
        ("old.db#full", "old.db", "full"),
        ("old.db#", "old.db", None),
        ("#full", "default.db", "full"),
        ("postgresql://host/db", "postgresql://host/db", None),
        ("postgresql://host/db#full", "postgresql://host/db", "full"),
    ],
)
def test_a_side_is_read_as_sweep_or_database(text: str, database: str, sweep: str | None) -> None:
    side = parse_side(text, "default.db")
    assert (side.database, side.sweep) == (database, sweep)


def test_the_ending_of_a_database_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last-month.db").touch()
    assert parse_side("last-month#full", "orch.db").database == "last-month.db"
    assert parse_side("last-month.db#full", "orch.db").database == "last-month.db"
    assert parse_side("other#full", "orch.db").database == "other"
    assert parse_side("last-month", "orch.db").sweep == "last-month"


def test_a_side_that_is_a_file_means_its_latest_sweep(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    database = Database(path)
    database.jobs(database.sweep("nightly"), database.environment(), BIG, times(1, 1.0, 4))
    database.close()
    side = read_side(parse_side(str(path), "default.db"), read_only)
    assert side.name == f"{path}#nightly"
    assert len(side.jobs) == 4


def test_an_unknown_sweep_is_an_error_that_lists_the_sweeps(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    database = Database(path)
    database.sweep("nightly")
    database.close()
    with pytest.raises(OrchError, match=r"no sweep 'x'.*nightly"):
        read_side(parse_side(f"{path}#x", "default.db"), read_only)


def with_status(fill: Fill, cell: Mapping[str, object], *statuses: str) -> Fill:
    """The jobs of one cell ended so; the others are ok."""

    def changed(database: Database, sweep: int, environment: int) -> None:
        fill(database, sweep, environment)
        for repeat, status in enumerate(statuses, start=1):
            database.set_status(sweep, cell, repeat, status)

    return changed


def test_a_cell_that_only_fails_in_b_fails_the_gate(tmp_path: Path) -> None:
    found = two_sweeps(tmp_path, simple(1), with_status(simple(11), BIG, *["failed"] * 4, "oom_gpu"))
    assert len(found.failing) == 1
    assert found.counts()[Verdict.INCONCLUSIVE] == 1
    assert found.is_worse_by(10.0)
    out = io.StringIO()
    render_comparison(found, format="table", out=out, note=out)
    assert f"figures in A, only failed jobs in B: {found.failing[0][3:9]}\n" in out.getvalue()


@pytest.mark.parametrize("statuses", [("failed",), ("pending",) * 5, ("skipped",) * 5, ("cancelled",) * 5])
def test_a_cell_that_has_not_failed_throughout_fails_no_gate(
    tmp_path: Path, statuses: tuple[str, ...]
) -> None:
    found = two_sweeps(tmp_path, simple(1), with_status(simple(11), BIG, *statuses))
    assert found.failing == ()
    assert not found.is_worse_by(0.2)


def test_a_sweep_against_itself_is_said_to_be_that(tmp_path: Path) -> None:
    two_sweeps(tmp_path, simple(1), simple(11))
    side = read_side(parse_side("after", str(tmp_path / "orch.db")), read_only)
    out = io.StringIO()
    render_comparison(compare(side, side), format="table", out=out, note=out)
    assert "A and B are the same sweep" in out.getvalue()


def test_a_cell_that_failed_in_a_too_is_not_news(tmp_path: Path) -> None:
    fill = with_status(simple(1), BIG, *["failed"] * 5)
    assert two_sweeps(tmp_path, fill, fill).failing == ()


@pytest.mark.parametrize("value", [float("inf"), 0.0, -1.0, None])
@pytest.mark.filterwarnings("error")
def test_a_figure_that_is_no_positive_number_is_inconclusive(tmp_path: Path, value: float | None) -> None:
    def spoilt(database: Database, sweep: int, environment: int) -> None:
        rows = times(3, 0.3, 5)
        rows[2]["offload_s_median"] = value
        database.jobs(sweep, environment, BIG, rows)

    found = two_sweeps(tmp_path, simple(1), spoilt)
    reasons = {change.metric: change.reason for change in found.changes}
    assert reasons["offload_s_median"] == "not measured, not finite or not positive in 1 job"
    out = io.StringIO()
    render_comparison(found, format="json", out=out, note=out)
    assert json.loads(out.getvalue())["counts"]["worse"] == 0
