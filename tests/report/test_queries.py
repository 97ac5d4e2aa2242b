"""docs/queries.md: every query runs on both databases and says what it claims to say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store import Store, open_store
from orchestrator.store.datasette import QUERIES
from tests.fixtures.make_results import JobPlan, Writer, axes
from tests.postgres import private_server, server_programs

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TITLES = re.findall(r"^## (\d+)\. (.*)$", PAGE, re.MULTILINE)

Sql = Callable[[str], list[tuple[Any, ...]]]


def rows_of(store: Store, number: int) -> list[dict[str, Any]]:
    columns, rows = store.sql(BLOCKS[number - 1].replace("'full'", "'gpu-full'"))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_there_are_twenty_questions() -> None:
    assert [int(number) for number, _ in TITLES] == list(range(1, 21))
    assert len(BLOCKS) == 22


@pytest.mark.parametrize("number", range(1, len(BLOCKS) + 1))
def test_every_query_gives_rows(store: Store, number: int) -> None:
    rows = rows_of(store, number)
    assert rows
    assert all(any(row[column] is not None for row in rows) for column in rows[0] if column in _MUST_SAY)


_MUST_SAY = {
    "offload_s",
    "reload_s",
    "collection_s",
    "cycles",
    "freed_bytes",
    "pinned_bytes",
    "why",
    "spread_share",
}


@pytest.fixture
def postgres_url() -> Iterator[str]:
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server program here")
    with private_server(programs) as server:
        yield server.new_database()


@pytest.mark.postgres
def test_every_query_runs_on_postgresql(postgres_url: str) -> None:
    with open_store(postgres_url, create=True) as store:
        for block in BLOCKS:
            _, rows = store.sql(block)
            assert rows == []


def test_the_collector_costs_what_the_fixture_put_in(store: Store) -> None:
    rows = {row["hidden_dim"]: row["collection_s"] for row in rows_of(store, 8)}
    assert rows[4096] == pytest.approx(0.125, abs=0.01)
    assert rows[16384] == pytest.approx(0.0, abs=0.01)


def test_pinning_pays_after_what_its_first_cycle_takes_longer_by_saving(store: Store) -> None:
    [row] = [r for r in rows_of(store, 10) if r["hidden_dim"] == 16384 and r["pin_backend"] == "default"]
    assert row["cycles"] == pytest.approx(1 + row["longer_s"] / row["saved_s"])
    assert 2 < row["cycles"] < 10


@pytest.mark.parametrize(("first", "cycles"), [(3.5, 2.0), (2.5, 1.0), (1.5, 1.0), (5.2, 3.7)])
def test_cycles_until_pinning_has_paid_are_those_of_the_report(
    tmp_path: Path, first: float, cycles: float
) -> None:
    """Cycles of 1 s after a first one of ``first`` against cycles of 2 s after one of 2.5 s."""
    writer = Writer(tmp_path / "r.db")
    writer.sweep("gpu-full", [JobPlan(axes(pin_memory=pin)) for pin in (True, False)])
    writer.db.execute(
        "UPDATE job_result SET cold_pinning_s = 3, reload_s_median = 0, reload_cold_s = 0,"
        f" offload_s_median = job_id, offload_cold_s = CASE job_id WHEN 1 THEN {first} ELSE 2.5 END"
    )
    writer.close()
    with open_store(str(tmp_path / "r.db"), readonly=True) as store:
        [row] = rows_of(store, 10)
        _, told = store.sql(QUERIES["pinning_cost"][1])
    assert row["cycles"] == pytest.approx(cycles)
    assert told[0][-1] == pytest.approx(cycles)


def test_failures_add_up(store: Store, sql: Sql) -> None:
    [(expected,)] = sql("""SELECT COUNT(*) FROM job WHERE sweep_id = 2
                           AND status NOT IN ('ok', 'pending', 'running', 'cancelled')""")
    assert sum(row["jobs"] for row in rows_of(store, 15)) == expected


def test_cells_without_a_figure_are_those_without_an_ok_job(store: Store, sql: Sql) -> None:
    expected = sql("""SELECT cell FROM job WHERE sweep_id = 2 EXCEPT
                      SELECT cell FROM job WHERE sweep_id = 2 AND status = 'ok' ORDER BY cell""")
    assert [(row["cell"],) for row in rows_of(store, 16)] == expected


def test_flagged_jobs_are_those_not_valid(store: Store, sql: Sql) -> None:
    expected = sql("""SELECT job_id FROM job_result JOIN job USING (job_id)
                      WHERE NOT is_valid AND sweep_id = 2 ORDER BY job_id""")
    assert [(row["job_id"],) for row in rows_of(store, 14)] == expected


def test_no_row_mixes_stages_precisions_or_sets_of_states(tmp_path: Path) -> None:
    plans = [
        JobPlan(axes(zero_stage=stage, dtype=dtype, included_state=states, gc_freeze=freeze, pin_memory=pin))
        for stage in (2, 3)
        for dtype in ("bfloat16", "float32")
        for states in ("all", "lp_params")
        for freeze in (False, True)
        for pin in (False, True)
    ]
    writer = Writer(tmp_path / "r.db")
    writer.sweep("gpu-full", plans)
    # Only ZeRO-2 is slow, so a query that mixed the stages would show something in between.
    writer.db.execute(
        "UPDATE job_result SET cold_pinning_s = 1, reload_s_median = 1, reload_cold_s = 1,"
        " offload_cold_s = 2 + (SELECT pin_memory FROM job j WHERE j.job_id = job_result.job_id) / 2.0,"
        " offload_s_median = (SELECT"
        " 10 * (zero_stage = 2) + 4 - pin_memory - gc_freeze FROM job j WHERE j.job_id = job_result.job_id)"
    )
    writer.close()
    with open_store(str(tmp_path / "r.db"), readonly=True) as store:
        counts = {number: len(rows_of(store, number)) for number in (1, 2, 3, 4, 6, 7, 8, 10, 11)}
        assert counts == {1: 8, 2: 32, 3: 8, 4: 8, 6: 8, 7: 16, 8: 8, 10: 8, 11: 16}
        assert {row["collection_s"] for row in rows_of(store, 8)} == {1.0}
        assert {(row["saved_s"], row["cycles"]) for row in rows_of(store, 10)} == {(1.0, 1.5)}


def test_pinning_that_saves_nothing_never_pays(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r.db")
    writer.sweep("gpu-full", [JobPlan(axes(pin_memory=pin)) for pin in (False, True)])
    writer.db.execute(
        "UPDATE job_result SET cold_pinning_s = 1, reload_s_median = 1, offload_s_median = job_id"
    )
    writer.close()
    with open_store(str(tmp_path / "r.db"), readonly=True) as store:
        [row] = rows_of(store, 10)
    assert (row["saved_s"], row["cycles"]) == (-1.0, None)
