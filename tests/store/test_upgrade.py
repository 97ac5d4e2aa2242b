"""Databases of every older version are taken to the newest one, and lose nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData

from orchestrator.errors import DatabaseVersion
from orchestrator.store import JobStatus, Store
from orchestrator.store.schema import SCHEMA_VERSION
from orchestrator.store.upgrade import MIGRATIONS, upgrade_store
from tests.postgres import PostgresServer, server_programs
from tests.store.make_old_version import FIXTURES
from tests.store.plans import make_plan

VERSIONS = sorted(path.name.split(".")[0][1:] for path in FIXTURES.glob("v*.sqlite.sql"))


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, database_url: str, opened: Callable[..., Store]) -> Store:
    """A database as an older orch left it."""
    if database_url.startswith("sqlite"):
        script = (FIXTURES / f"v{request.param}.sqlite.sql").read_text()
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
            connection.execute("PRAGMA journal_mode = WAL")
    else:
        import psycopg

        dump = (FIXTURES / f"v{request.param}.postgresql.sql").read_text()
        # Commands of psql itself, which newer versions of pg_dump write.
        script = "\n".join(line for line in dump.splitlines() if not line.startswith("\\"))
        with psycopg.connect(database_url, autocommit=True) as server:
            server.execute(script)
    return opened(database_url, any_version=True)


def _shape(store: Store) -> dict[str, Any]:
    found = MetaData()
    found.reflect(store.session.engine, views=True)
    return {
        name: [(c.name, str(c.type), c.nullable, c.primary_key) for c in table.columns]
        for name, table in found.tables.items()
    }


def test_every_version_has_its_file() -> None:
    assert VERSIONS[-1] == SCHEMA_VERSION, "run python -m tests.store.make_old_version"
    names = {f"v{version}.{kind}.sql" for version in VERSIONS for kind in ("sqlite", "postgresql")}
    assert names == {path.name for path in FIXTURES.iterdir()}
    migrations = sorted(path.name[1:5] for path in (MIGRATIONS / "versions").glob("v*.py"))
    assert migrations == VERSIONS


def test_old_database_is_upgraded_and_keeps_its_rows(
    old: Store, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = upgrade_store(old, backup=old.dialect == "sqlite")
    assert done.after == SCHEMA_VERSION
    if old.dialect == sqlite_store.dialect:
        assert _shape(old) == _shape(sqlite_store)
    sweep_id = old.latest_sweep().sweep_id
    counts = {status: number for status, number in old.counts(sweep_id).items() if number}
    assert counts == {JobStatus.pending: 2, JobStatus.ok: 1, JobStatus.lost: 1}
    assert old.sql("SELECT COUNT(*), SUM(copied_bytes) FROM iteration")[1] == [(7, 7_000_000)]
    assert old.check() == []
    assert old.put_sweep(make_plan("old", repeats=3)).added == 2


_NEXT = """
from alembic import op
import sqlalchemy as sa

revision = "0002"
down_revision = "0001"

def upgrade():
    op.execute("DROP VIEW example_table")
    op.add_column("sweep", sa.Column("colour", sa.TEXT))
    op.execute("UPDATE sweep SET colour = 'blue'")
    {rest}
"""


def _migrations(tmp_path: Path, rest: str) -> Path:
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder)
    (folder / "versions" / "v0002_next.py").write_text(_NEXT.format(rest=rest))
    return folder


def test_upgrade_runs_migrations_after_a_backup(
    old: Store, tmp_path: Path, opened: Callable[..., Store]
) -> None:
    folder = _migrations(tmp_path, "")
    done = upgrade_store(old, backup=old.dialect == "sqlite", migrations=folder, newest="0002")
    assert (done.before, done.after) == (VERSIONS[0], "0002")
    assert old.sql("SELECT colour FROM sweep")[1] == [("blue",)]
    with pytest.raises(DatabaseVersion, match="0002"):
        opened(old.url)
    if done.backup is not None:
        assert opened(done.backup).sweep_names() == ["old"]


def test_upgrade_that_fails_changes_nothing(old: Store, tmp_path: Path) -> None:
    folder = _migrations(tmp_path, "raise RuntimeError('no')")
    before = _shape(old)
    with pytest.raises(RuntimeError):
        upgrade_store(old, backup=False, migrations=folder, newest="0002")
    assert _shape(old) == before
    assert old.sql("SELECT version_num FROM alembic_version")[1] == [(VERSIONS[0],)]


def test_upgrade_of_a_newer_database_is_refused(sqlite_store: Store) -> None:
    with sqlite_store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(DatabaseVersion, match="0099"):
        upgrade_store(sqlite_store)


@pytest.mark.postgres
def test_backup_of_postgresql_is_a_dump(
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: Callable[..., Store],
) -> None:
    from orchestrator.store.upgrade import make_backup

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(server_programs()), prepend=os.pathsep)
    store = opened(postgres_server.new_database(), create=True)
    store.put_sweep(make_plan("kept"))
    dump = make_backup(store, "0001")
    assert "kept" in dump.read_text()
    assert make_backup(store, "0001") != dump
