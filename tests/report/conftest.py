"""A database of invented results, made once, and ways to read it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import main
from orchestrator.store import Store, open_store
from tests.fixtures.make_results import make_small

Orch = Callable[..., Result]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweeps ``cpu-quick`` and, later, ``gpu-full``."""
    return make_small(tmp_path_factory.mktemp("results") / "results.db")


@pytest.fixture
def store(results: Path) -> Iterator[Store]:
    """The same, opened for reading."""
    with open_store(str(results), readonly=True) as opened:
        yield opened


@pytest.fixture
def sql(results: Path) -> Iterator[Callable[[str], list[tuple[object, ...]]]]:
    """Rows of a query, past all code of ours."""
    with closing(sqlite3.connect(results)) as connection:
        yield lambda query: connection.execute(query).fetchall()


@pytest.fixture
def orch(results: Path, monkeypatch: pytest.MonkeyPatch) -> Orch:
    """Run ``orch`` on that database, not on a terminal."""
    monkeypatch.setenv("ORCH_DB", str(results))
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])
