"""The queries of compare, predict and plan give on PostgreSQL what they give on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from orchestrator.analysis.compare import compare
from orchestrator.analysis.sides import parse_side, read_only, read_side
from orchestrator.store import Store, open_store
from orchestrator.store.queries_stats import measured_jobs, wall_times
from orchestrator.store.tables import metadata
from tests.postgres import private_server, server_programs
from tests.stats import h200


def copy_rows(source: Store, target: Store) -> None:
    """Every row as it is: a transfer would work the results out anew."""
    with source.session.engine.connect() as old, target.session.engine.begin() as new:
        for table in metadata.sorted_tables:
            rows = [dict(row._mapping) for row in old.execute(table.select())]
            if rows and table.name not in ("alembic_version", "counter"):
                new.execute(table.insert(), rows)


@pytest.mark.postgres
def test_both_databases_answer_alike(tmp_path: Path) -> None:
    h200.fill(tmp_path / "o.db")
    programs = server_programs()
    assert programs is not None
    with private_server(programs) as server:
        url = server.new_database()
        with open_store(str(tmp_path / "o.db")) as source, open_store(url, create=True) as target:
            copy_rows(source, target)
            for query in (measured_jobs, wall_times):
                assert_frame_equal(query(target), query(source), check_dtype=False)
        a = read_side(parse_side(str(tmp_path / "o.db"), ""), read_only)
        b = read_side(parse_side(f"{url}#full", ""), read_only)
        assert compare(a, b).environment == ()
        assert ":secret@" in url
        assert "secret" not in b.name
