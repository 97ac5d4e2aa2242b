"""What an engine is given, whatever the words of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engines.choose import setting_of
from orchestrator.spec.load import load_plan


@pytest.mark.parametrize("name", ["orch.db", "sqlite:///orch.db", "./orch.db", "sqlite:orch.db"])
def test_a_relative_database_is_the_same_file_from_a_ranks_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert setting_of(load_plan("quickstart"), name).db_url == str(tmp_path / "orch.db")


def test_a_database_server_is_named_in_full() -> None:
    url = "postgresql://me:secret@server:5432/orch"
    assert setting_of(load_plan("quickstart"), url).db_url == url
