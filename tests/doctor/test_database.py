"""What doctor says about the results database."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.doctor import database
from orchestrator.doctor.database import check_database
from orchestrator.doctor.finding import Severity


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
