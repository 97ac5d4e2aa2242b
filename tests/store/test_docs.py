"""The reference page and Datasette's metadata follow ``schema.sql``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.store import Store
from orchestrator.store.datasette import QUERIES, metadata
from orchestrator.store.schemadoc import schema_docs, unit_of
from orchestrator.store.tables import metadata as tables
from tests.store.plans import make_plan

ROOT = Path(__file__).resolve().parents[2]


def test_database_page_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/database.py", "--check"], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 0, "run python docs/database.py"


def test_every_table_and_column_is_documented() -> None:
    docs = {doc.name: [column.name for column in doc.columns] for doc in schema_docs() if not doc.is_view}
    assert docs == {name: table.c.keys() for name, table in tables.tables.items()}
    assert [doc.name for doc in schema_docs() if doc.is_view] == [
        "job_summary",
        "best_setting",
        "example_table",
    ]


@pytest.mark.parametrize(
    ("name", "unit"),
    [("offload_s_median", "s"), ("freed_bytes", "B"), ("offload_gbps", "GB/s"), ("reload_cold_s", "s"),
     ("skipped_steps", ""), ("seconds", "s"), ("status", ""), ("pin1_nb1_load_s", "s"), ("ranks", "")],
)  # fmt: skip
def test_unit_is_read_off_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize("name", QUERIES)
def test_canned_query_runs_on_both_databases(store: Store, name: str) -> None:
    assert store.sql(QUERIES[name][1])[1] == []


def test_datasette_opens_the_file_with_the_metadata(sqlite_store: Store, tmp_path: Path) -> None:
    datasette = Path(sys.executable).with_name("datasette")
    if not datasette.exists():
        pytest.skip("datasette is not installed")
    sqlite_store.put_sweep(make_plan())
    file = tmp_path / "metadata.json"
    file.write_text(json.dumps(metadata("orch")))
    for path in ("/orch/job_summary.json?_shape=array", "/orch/not_ok.json?_shape=array"):
        done = subprocess.run(
            [datasette, str(sqlite_store.session.where.path), "--metadata", str(file), "--get", path],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert isinstance(json.loads(done.stdout), list)
