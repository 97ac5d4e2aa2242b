"""Stores for the tests: every contract runs on a SQLite file and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from orchestrator.store import Store, open_store
from tests.postgres import PostgresServer, private_server, server_programs

# A busy machine is no fault of the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One private server for the whole run."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine")
    with private_server(programs) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database that is not made yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'orch.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url


@pytest.fixture
def opened() -> Iterator[Callable[..., Store]]:
    """``open_store`` whose stores are closed after the test."""
    stores: list[Store] = []

    def open_one(url: str | Path, **options: object) -> Store:
        store = open_store(str(url), **options)  # type: ignore[arg-type]
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(database_url: str, opened: Callable[..., Store]) -> Store:
    """A fresh store."""
    return opened(database_url, create=True)


@pytest.fixture
def sqlite_store(tmp_path: Path, opened: Callable[..., Store]) -> Store:
    """A fresh store in a file, for what concerns files alone."""
    return opened(tmp_path / "orch.db", create=True)
