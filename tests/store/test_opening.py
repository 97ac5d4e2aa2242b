"""Opening a database, or one clear line why not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import DatabaseError, DatabaseUnreachable, DatabaseVersion
from orchestrator.store import Store, filesystem, open_store
from orchestrator.store.filesystem import network_file_system
from orchestrator.store.schema import check_server
from orchestrator.store.url import resolve_url, without_passwords
from tests.postgres import PostgresServer
from tests.store.plans import make_plan

_MOUNTS = """\
rootfs / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmp /home/tmp tmpfs rw 0 0
gpfs0 /data/my\\040files gpfs rw 0 0
lustre /scratch lustre rw 0 0
sshfs /mnt fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("text", "url", "dialect"),
    [
        ("/a/b.db", "sqlite:////a/b.db", "sqlite"),
        ("sqlite:////a/b c.db", "sqlite:////a/b c.db", "sqlite"),
        ("/a/50%.db", "sqlite:////a/50%25.db", "sqlite"),
        ("postgres://u:p@h/d", "postgresql://u:p@h/d", "postgresql"),
        ("postgresql://h/d?host=/x", "postgresql://h/d?host=/x", "postgresql"),
        ("postgresql+psycopg://h/d", "postgresql://h/d", "postgresql"),
    ],
)
def test_url_is_resolved_and_resolves_to_itself(text: str, url: str, dialect: str) -> None:
    found = resolve_url(text)
    assert (found.text, found.dialect) == (url, dialect)
    assert resolve_url(found.text).text == url


def test_url_defaults_to_the_environment_then_to_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_url(None, {"ORCH_DB": "x.db"}).path == tmp_path / "x.db"
    assert resolve_url(None, {}).path == tmp_path / "orch.db"


@pytest.mark.parametrize("text", ["mysql://h/d", ":memory:", "sqlite://", "sqlite://x.db"])
def test_url_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        resolve_url(text)
    assert caught.value.exit_status == 3


@pytest.mark.parametrize("text", ["postgresql://me:s3cret@h/d", "postgresql://h/d?user=me&password=s3cret"])
def test_password_is_never_shown(text: str) -> None:
    assert "s3cret" not in resolve_url(text).shown


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for options in ({}, {"readonly": True}):
        with pytest.raises(DatabaseUnreachable, match="no such database"):
            open_store(str(tmp_path / "none.db"), **options)
    assert list(tmp_path.iterdir()) == []


def test_reader_leaves_no_files_behind(tmp_path: Path) -> None:
    path = tmp_path / "orch.db"
    open_store(str(path), create=True).close()
    with open_store(str(path), readonly=True) as reader:
        assert reader.sweep_names() == []
    assert list(tmp_path.iterdir()) == [path]


def test_readonly_store_cannot_write(sqlite_store: Store, opened: Callable[..., Store]) -> None:
    reader = opened(sqlite_store.url, readonly=True)
    with pytest.raises(DatabaseError, match="read-only"):
        reader.put_sweep(make_plan())


@pytest.mark.parametrize(
    ("content", "message"), [(b"hello, world: not a database", "not a SQLite"), (b"", "empty file")]
)
def test_file_that_is_no_database_is_refused_and_kept(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match=message) as caught:
        open_store(str(path), readonly=True)
    assert caught.value.exit_status == 3
    assert path.read_bytes() == content


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnreachable, match="folder"):
        open_store(str(tmp_path), create=True)


def test_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    with pytest.raises(DatabaseError) as caught:
        open_store(str(path), create=True)
    assert "\n" not in caught.value.render()


def test_someone_elses_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    for create in (False, True):
        with pytest.raises(DatabaseError, match="not one of orch"):
            open_store(str(path), create=create)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


@pytest.mark.skipif(os.getuid() != 0, reason="drops root's rights")
def test_unreadable_and_unwritable_are_one_line(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"orch-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        path = folder / "orch.db"
        open_store(str(path), create=True).close()
        path.chmod(0o644)
        body = (
            "import os, sys\n"
            "from orchestrator.store import open_store\n"
            "open_store(sys.argv[1], readonly=True).close()  # imports all, which nobody may read\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "print(open_store(sys.argv[1], readonly=True).sweep_names())\n"
            "for name, options in ((sys.argv[1], {}), (sys.argv[2], {'create': True})):\n"
            "    try:\n"
            "        open_store(name, **options).request_cancel('x')\n"
            "    except Exception as e: print(type(e).__name__)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", body, str(path), str(folder / "new.db")],
            capture_output=True, text=True, check=False, cwd="/", env={"PYTHONPATH": str(Path.cwd())},
        )  # fmt: skip
        assert done.stdout.split() == ["[]", "DatabaseFull", "DatabaseUnreachable"], done.stderr
    finally:
        shutil.rmtree(folder)


def test_newer_schema_is_refused_naming_both_versions(database_url: str) -> None:
    with open_store(database_url, create=True) as store, store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(DatabaseVersion, match=r"0099.*0001") as caught:
        open_store(database_url)
    assert caught.value.exit_status == 3


def test_older_schema_names_the_upgrade(sqlite_store: Store) -> None:
    with sqlite_store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(DatabaseVersion, match="orch db upgrade"):
        open_store(sqlite_store.url)


def test_two_creators_at_once_make_one_database(database_url: str) -> None:
    with open_store(database_url, create=True) as one, open_store(database_url, create=True) as two:
        one.put_sweep(make_plan("a"))
        two.put_sweep(make_plan("b"))
        assert one.sweep_names() == ["b", "a"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/x.db", "nfs4"),
        ("/home/tmp/x.db", None),
        ("/data/my files/x.db", "gpfs"),
        ("/scratch/x.db", "lustre"),
        ("/mnt/x.db", "fuse.sshfs"),
        ("/var/x.db", None),
        ("/homes/x.db", None),
    ],
)
def test_c5_network_file_system_is_recognised(tmp_path: Path, path: str, kind: str | None) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(_MOUNTS)
    assert network_file_system(Path(path), mounts) == kind


def test_c5_network_file_system_is_refused_for_several_hosts_and_warned_of_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"x / ext4 rw 0 0\nserver:/x {tmp_path} nfs rw 0 0\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    with open_store(str(tmp_path / "one.db"), create=True) as store:
        assert "network file system (nfs)" in store.warnings[0]
    with pytest.raises(DatabaseError, match=r"nfs.*several hosts.*PostgreSQL") as caught:
        open_store(str(tmp_path / "two.db"), create=True, hosts=2)
    assert caught.value.exit_status == 3
    assert not (tmp_path / "two.db").exists()


def test_c5_several_hosts_need_postgresql_even_on_a_local_disk(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="PostgreSQL"):
        open_store(str(tmp_path / "x.db"), create=True, hosts=2)


def test_too_old_server_is_refused() -> None:
    url = resolve_url("postgresql://h/d")
    check_server(150004, url)
    with pytest.raises(DatabaseVersion, match="PostgreSQL 14 is too old"):
        check_server(140012, url)


def test_too_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    with pytest.raises(DatabaseVersion, match=r"SQLite 3\.26\.0 is too old"):
        open_store(str(tmp_path / "x.db"), create=True)


@pytest.mark.postgres
def test_server_is_asked_for_its_version(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.schema.OLDEST_POSTGRESQL", 990000)
    with pytest.raises(DatabaseVersion, match="too old"):
        open_store(postgres_server.url(), create=True)


@pytest.mark.postgres
def test_postgresql_refusals_are_one_clear_line(postgres_server: PostgresServer, tmp_path: Path) -> None:
    cases = {
        postgres_server.url(password="wrong"): "wrong user or password",
        postgres_server.url("nowhere"): 'database "nowhere" does not exist',
        f"postgresql://orch@/x?host={tmp_path}": "no answer from the server",
        "postgresql://orch@127.0.0.1:1/x": "no answer from the server",
    }
    for url, message in cases.items():
        with pytest.raises(DatabaseUnreachable) as caught:
            open_store(url, create=True)
        line = caught.value.render()
        assert message in line
        assert "\n" not in line
        assert "wrong@" not in line
        assert caught.value.exit_status == 3
    with pytest.raises(DatabaseUnreachable, match="nothing in it yet"):
        open_store(postgres_server.new_database())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3c@h/orch#full", "postgresql://me:***@h/orch#full"),
        (
            "'postgres://h/orch?user=me&password=s3c&x=1' -q",
            "'postgres://h/orch?user=me&password=***&x=1' -q",
        ),
        (
            "orch sweep a --db postgresql+psycopg://me:s3c@/o",
            "orch sweep a --db postgresql+psycopg://me:***@/o",
        ),
        ("postgresql://me@h/orch", "postgresql://me@h/orch"),
        ("last:month@home.db#full", "last:month@home.db#full"),
    ],
)
def test_lines_are_shown_without_passwords(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
