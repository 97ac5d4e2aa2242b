"""docs/h200.md is what docs/h200.py makes of the measurements under docs/data, and those are sound."""

from __future__ import annotations

import re
import runpy
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
DATABASE = DOCS / "data" / "h200-x2.db"
PAGE = (DOCS / "h200.md").read_text(encoding="utf-8")


def query(text: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{DATABASE}?mode=ro", uri=True)) as connection:
        return connection.execute(text).fetchall()


def test_the_page_is_what_the_database_says() -> None:
    page: Callable[[], str] = runpy.run_path(str(DOCS / "h200.py"))["page"]
    assert page() == PAGE, "run: python docs/h200.py"


def test_the_query_on_the_page_gives_its_table() -> None:
    [block] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rows = query(block)
    assert [(row[1], row[2]) for row in rows if row[0] == 0] == [
        (0, 0), (1, 268500992), (2, 268500992), (3, 268500992),
    ]  # fmt: skip
    assert all(f"| {row[0]} | {row[1]} | {row[2]:,} | {row[3]:,} |" in PAGE for row in rows)


def test_what_the_page_says_was_not_run_was_not_run() -> None:
    assert query("SELECT name FROM sweep ORDER BY name") == [("bytes-2",), ("known_faults",), ("quickstart",)]
    assert query("SELECT MAX(repeat) FROM job") == [(1,)]
    [(largest,)] = query("SELECT MAX(copied_bytes) FROM job_result")
    assert isinstance(largest, int) and largest < 30e9


def test_the_shipped_database_is_sound_and_leaves_no_files_behind(tmp_path: Path) -> None:
    copy = Path(shutil.copy(DATABASE, tmp_path / "h200.db"))
    done = CliRunner().invoke(main, ["db", "check", "--db", str(copy)])
    assert (done.exit_code, done.stdout) == (0, "ok\n")
    CliRunner().invoke(main, ["report", "--db", str(copy)])
    # A reader of a file in WAL mode would make two more beside it.
    assert [path.name for path in tmp_path.iterdir()] == ["h200.db"]


@pytest.mark.parametrize("sweep", ["quickstart", "bytes-2", "known_faults"])
def test_the_shipped_sweeps_can_be_reported(sweep: str) -> None:
    done = CliRunner().invoke(main, ["report", sweep, "--db", str(DATABASE)])
    assert done.exit_code == 0, done.output
    assert "best setting: " in done.stdout or "only valid setting: " in done.stdout


def test_the_shipped_database_names_no_folder_of_whoever_measured() -> None:
    assert query("SELECT spec_path FROM sweep WHERE spec_path LIKE '/%'") == []
    assert query("SELECT run_dir FROM attempt WHERE run_dir LIKE '/%'") == []
    tracebacks = query("SELECT traceback FROM attempt_rank WHERE traceback IS NOT NULL")
    files = {name for (text,) in tracebacks for name in re.findall(r'File "([^"]+)"', str(text))}
    assert files
    assert not any(name.startswith("/") for name in files)
