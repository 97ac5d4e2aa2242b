"""What doctor says about the results database."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.doctor import database
from orchestrator.doctor.database import check_database
from orchestrator.doctor.finding import Severity
from orchestrator.store import open_store
from tests.postgres import private_server, server_programs


def test_missing_database_is_no_fault(tmp_path: Path) -> None:
    (finding,) = check_database(str(tmp_path / "orch.db"))
    assert (finding.severity, finding.check) == (Severity.OK, "database")
    assert not (tmp_path / "orch.db").exists()


def test_c5_file_on_a_network_file_system_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "network_file_system", lambda _path: "nfs4")
    findings = check_database(str(tmp_path / "orch.db"))
    assert [finding.severity for finding in findings] == [Severity.OK, Severity.WARN]
    assert "network file system (nfs4)" in findings[1].message


def test_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "orch.db").write_text("no database at all")
    (finding,) = check_database(str(tmp_path / "orch.db"))
    assert finding.severity is Severity.ERROR
    assert "not a SQLite database" in finding.message


def test_unreachable_server_is_an_error() -> None:
    (finding,) = check_database("postgresql://nobody@127.0.0.1:1/none")
    assert finding.severity is Severity.ERROR
    assert finding.evidence == "DatabaseUnreachable"


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("ahead_s", "said"), [(60, "this host's clock is 60 s behind"), (-60, "60 s ahead of")]
)
def test_server_whose_clock_differs_is_a_warning(ahead_s: int, said: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server program here")
    with private_server(programs) as server:
        url = server.new_database()
        open_store(url, create=True).close()
        with psycopg.connect(url, autocommit=True) as connection:
            # The server's own clock, wrong for this database.
            connection.execute("CREATE SCHEMA wrong")
            connection.execute(
                "CREATE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
                f" $$ SELECT pg_catalog.clock_timestamp() + interval '{ahead_s} seconds' $$"
            )
            name = connection.execute("SELECT current_database()").fetchone()[0]
            connection.execute(f'ALTER DATABASE "{name}" SET search_path = wrong, pg_catalog, public')
        findings = check_database(url)
    assert [(finding.check, finding.severity) for finding in findings] == [
        ("database", Severity.OK), ("clock", Severity.WARN),
    ]  # fmt: skip
    assert said in findings[1].message
    assert "secret" not in "".join(finding.message + finding.evidence for finding in findings)
