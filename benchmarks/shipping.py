"""Makes of a database that was measured somewhere one that can be kept in a repository."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path


def copy_database(source: Path, target: Path) -> None:
    """A copy with what still lies in a log beside the file."""
    with closing(sqlite3.connect(source)) as given, closing(sqlite3.connect(target)) as taken:
        given.backup(taken)


def without_folders(path: Path) -> None:
    """Cut the measuring host's folders out of a database that others will read."""
    with closing(sqlite3.connect(path)) as database:
        database.create_function("shown", 1, _shown)
        for table, column in (("sweep", "spec_path"), ("attempt", "run_dir"), ("attempt_rank", "traceback")):
            database.execute(f"UPDATE {table} SET {column} = shown({column}) WHERE {column} LIKE '%/%'")
        database.commit()
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("VACUUM")


def _shown(text: str) -> str:
    """A path from the folder that says what it is; in a traceback, every path."""
    if "\n" in text:
        return re.sub(r'File "([^"]+)"', lambda found: f'File "{_shown(found[1])}"', text)
    for marker in ("site-packages/", "dist-packages/", "/orchestrator/", "/worker/", ".runs/", "/sweeps/"):
        place = text.rfind(marker)
        if place >= 0:
            kept = text[place:].removeprefix("site-packages/").removeprefix("dist-packages/").lstrip("/")
            return f"runs/{kept.removeprefix('.runs/')}" if marker == ".runs/" else kept
    return text.rsplit("/", 1)[-1] if text.startswith("/") else text


def counts(database: Path) -> dict[str, str]:
    """Sweep → how many of its jobs are in which status."""
    if not database.exists():
        return {}
    query = """SELECT s.name, j.status, COUNT(*) FROM job j JOIN sweep s ON s.sweep_id = j.sweep_id
               GROUP BY s.name, j.status ORDER BY s.sweep_id"""
    found: dict[str, str] = {}
    with closing(sqlite3.connect(database)) as connection:
        for name, status, count in connection.execute(query):
            found[name] = ", ".join(filter(None, (found.get(name), f"{count} {status}")))
    return found
