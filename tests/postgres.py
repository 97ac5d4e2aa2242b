"""A private PostgreSQL server for tests: a socket in a folder of its own, no port, no fsync."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.leftovers import watched

_FAST = "-c fsync=off -c full_page_writes=off -c max_connections=100"


def server_programs() -> Path | None:
    """The folder of initdb and pg_ctl, newest version first; None if there is no server here."""
    on_path = shutil.which("pg_ctl")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda p: -int(p.parts[-3]))
    return Path(on_path).resolve().parent if on_path else (found[0].parent if found else None)


class PostgresServer:
    """One server process, owned by this object."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs = folder, programs
        self._data = folder / "data"
        self._databases = 0
        self._free: list[str] = []

    def run(self, program: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of the server's programs as the unprivileged user."""
        command = [*_unprivileged(), str(self._programs / program), *args]
        return subprocess.run(
            command, cwd=self.folder, check=check, capture_output=True, text=True, timeout=60,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.folder)},
        )  # fmt: skip

    def create(self) -> None:
        """Lay the cluster down: superuser ``orch``, whose password ``secret`` is asked for everywhere."""
        password = self.folder / "password"
        password.write_text("secret\n")
        password.chmod(0o644)
        self.run(
            "initdb", "-D", str(self._data), "-U", "orch", "--pwfile", str(password), "-A", "scram-sha-256",
            "-E", "UTF8", "--no-sync",
        )  # fmt: skip

    def start(self) -> None:
        """Start and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} {_FAST}"
        self.run(
            "pg_ctl", "-D", str(self._data), "-l", str(self.folder / "log"), "-w", "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop and wait until it is gone."""
        self.run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop", check=False)

    def url(self, database: str = "postgres", password: str = "secret") -> str:
        """The URL of a database of this server."""
        return f"postgresql://orch:{password}@/{database}?host={quote(str(self.folder), safe='')}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database; it is emptied and used again afterwards."""
        url = self._free.pop() if self._free else self.new_database()
        yield url
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._free.append(url)

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def _unprivileged() -> list[str]:
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@contextmanager
def private_server(programs: Path) -> Iterator[PostgresServer]:
    """A running server that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="orch-pg-"))
    folder.chmod(0o755)
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    server = PostgresServer(folder, programs)
    with watched(folder, f"HOME={folder}"):
        try:
            server.create()
            server.start()
            yield server
        finally:
            server.stop("immediate")
