"""``orch sql`` and ``orch db`` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import main
from orchestrator.store import open_store
from tests.store.plans import make_plan


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A database with one sweep of two jobs."""
    path = str(tmp_path / "orch.db")
    with open_store(path, create=True) as store:
        store.put_sweep(make_plan())
    return path


def _orch(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(args), input=stdin)


def test_sql_json_is_an_array_of_objects(database: str) -> None:
    done = _orch("sql", "SELECT job_id, status FROM job ORDER BY job_id", "--db", database, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == [{"job_id": 1, "status": "pending"}, {"job_id": 2, "status": "pending"}]


def test_sql_takes_standard_input_and_other_formats(database: str, tmp_path: Path) -> None:
    done = _orch("sql", "-", "--db", database, "--format", "csv", stdin="SELECT 1 AS one, 'a|b' AS two;\n")
    assert done.stdout == "one,two\n1,a|b\n"
    done = _orch("sql", "SELECT 2 AS n", "--db", database, "--json", "-o", str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text()) == [{"n": 2}]


@pytest.mark.parametrize(
    ("query", "word"), [("SELECT nope", "nope"), ("DELETE FROM job", "only reads"), ("", "empty")]
)
def test_sql_error_is_one_line_and_exit_2(database: str, query: str, word: str) -> None:
    done = _orch("sql", query, "--db", database)
    assert done.exit_code == 2
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_database_that_is_not_there_is_exit_3_and_not_made(tmp_path: Path) -> None:
    for args in (["sql", "SELECT 1"], ["db", "check"], ["db", "upgrade"], ["db", "delete", "x", "--yes"]):
        done = _orch(*args, "--db", str(tmp_path / "none.db"))
        assert done.exit_code == 3
        assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_check_says_ok_or_what_is_wrong_and_mends_it(database: str) -> None:
    assert _orch("db", "check", "--db", database).stdout == "ok\n"
    with open_store(database) as store, store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE counter SET next_id = 1 WHERE name = 'job'")
    done = _orch("db", "check", "--db", database)
    assert (done.exit_code, done.stdout) == (1, "job: the next id 1 is taken already; orch db check --fix\n")
    assert _orch("db", "check", "--fix", "--db", database).exit_code == 0


def test_upgrade_of_the_newest_schema_does_nothing(database: str) -> None:
    assert _orch("db", "upgrade", "--db", database).stdout == "schema 0001: nothing to do\n"


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("SELECT offlod_s_median FROM job_summary", "did you mean offload_s_median"),
        ("SELECT * FROM job_sumary", "did you mean job_summary"),
        ("SELECT j.statsu FROM job j", "did you mean status"),
        ("SELECT qqqqq FROM job", "docs/database.md"),
    ],
)
def test_sql_names_the_nearest_column_or_table(database: str, query: str, meant: str) -> None:
    done = _orch("sql", query, "--db", database)
    assert done.exit_code == 2
    assert meant in done.stderr


def test_export_import_and_delete(database: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.db")
    done = _orch("db", "export", other, "small", "--db", database, "--without-samples")
    assert done.stdout == "small: new 2 jobs, 0 attempts, 0 iterations, 0 samples\n"
    assert _orch("db", "delete", "small", "--db", database, "--yes").exit_code == 0
    assert _orch("db", "import", other, "--db", database).exit_code == 0
    with open_store(database, readonly=True) as store:
        assert store.sweep_names() == ["small"]
    assert _orch("db", "export", database, "--db", database).exit_code == 2


def test_nothing_is_made_where_the_source_is_wrong(database: str, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    for args, status in (
        (["db", "export", str(target), "nope", "--db", database], 2),
        (["db", "import", str(tmp_path / "none.db"), "--db", str(target)], 3),
        (["db", "import", database, "nope", "--db", str(target)], 2),
        (["db", "import", database, "--name", "x", "--db", str(target)], 2),
    ):
        assert _orch(*args).exit_code == status
        assert not target.exists()


def test_delete_asks_first(database: str) -> None:
    done = _orch("db", "delete", "small", "--db", database, stdin="n\n")
    assert done.exit_code == 2
    assert "not done: delete sweep small" in done.stderr
    with open_store(database, readonly=True) as store:
        assert store.sweep_names() == ["small"]
    assert _orch("db", "delete", "small", "--db", database, stdin="y\n").exit_code == 0


def test_delete_without_anybody_to_answer_names_the_option(database: str) -> None:
    done = _orch("db", "delete", "small", "--db", database, stdin="")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("orch: nobody answers: delete sweep small")
    assert done.stderr.endswith("say yes with --yes\n")
    assert done.stdout == ""
    with open_store(database, readonly=True) as store:
        assert store.sweep_names() == ["small"]


def test_import_of_an_example_log(database: str, tmp_path: Path) -> None:
    log = tmp_path / "offload_states.log"
    log.write_text("1,1,6.35,2.43\n")
    done = _orch(
        "db", "import", str(log), "--name", "published", "--set", "hidden_dim=32768", "--db", database
    )
    assert done.stdout == "published: new 1 job, 1 attempt, 1 iteration, 0 samples\n"
    assert _orch("db", "import", str(log), "--set", "hidden=1", "--db", database).exit_code == 2


def test_metadata_is_json(database: str) -> None:
    done = _orch("db", "metadata", "--db", database)
    assert json.loads(done.stdout)["databases"]["orch"]["queries"]
