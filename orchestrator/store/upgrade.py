"""Takes an older database to the newest schema, after a backup."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from orchestrator.errors import DatabaseError
from orchestrator.store.schema import SCHEMA_VERSION, check_version, found_version

if TYPE_CHECKING:
    from orchestrator.store.store import Store

MIGRATIONS = Path(__file__).parent / "migrations"
_DUMP_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade did; ``backup`` is None if there was nothing to do or it was not wanted."""

    before: str
    after: str
    backup: Path | None


def upgrade_store(
    store: Store, *, backup: bool = True, migrations: Path = MIGRATIONS, newest: str = SCHEMA_VERSION
) -> Upgrade:
    """Migrate the database in one transaction: all of it, or nothing.

    Args:
        store: opened with ``any_version``.
        backup: copy the file first; for PostgreSQL, ``pg_dump`` into the current folder.

    Raises:
        DatabaseVersion: it is newer than this orch.
    """
    version = store.session.read(lambda c: found_version(c, store.session.where))
    if version is None:
        raise DatabaseError("there is nothing in it yet", store.shown)
    if int(version) >= int(newest):
        check_version(version, store.session.where, newest)
        return Upgrade(version, version, None)
    copy = make_backup(store, version) if backup else None
    store.session.write(lambda c: _migrate(c, migrations), patience_s=0.0)
    return Upgrade(version, newest, copy)


def _migrate(connection: Connection, migrations: Path) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def make_backup(store: Store, version: str) -> Path:
    """A copy of the whole database, named by its version; never over a file that is there."""
    path = store.session.where.path
    if path is not None:
        target = _unused(path.with_name(f"{path.name}.v{version}.backup"))
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        return target
    target = _unused(Path.cwd() / f"orch.v{version}.backup.sql")
    program = shutil.which("pg_dump")
    if program is None:
        raise DatabaseError(
            "pg_dump is not here to make a backup", store.shown, "install it, or orch db upgrade --no-backup"
        )
    done = subprocess.run(
        [program, "--no-owner", f"--file={target}", store.url],
        capture_output=True, text=True, timeout=_DUMP_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise DatabaseError(f"the backup failed ({done.stderr.strip()[:200]})", store.shown)
    return target


def _unused(path: Path) -> Path:
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.{number}")
    return candidate
