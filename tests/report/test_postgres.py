"""Reports of the same rows are the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from orchestrator.cli.main import main
from orchestrator.store import open_store
from orchestrator.store.tables import metadata
from tests.postgres import private_server, server_programs

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def copied(results: Path) -> Iterator[str]:
    """The test database copied into a PostgreSQL server of our own."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server program here")
    with private_server(programs) as server:
        url = server.new_database()
        open_store(url, create=True).close()
        source = sa.create_engine(f"sqlite:///{results}")
        target = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
        with source.connect() as reading, target.begin() as writing:
            for table in metadata.sorted_tables:
                if table.name in ("alembic_version", "counter"):
                    continue
                rows = [row._asdict() for row in reading.execute(sa.select(table))]
                if rows:
                    writing.execute(sa.insert(table), rows)
        source.dispose()
        target.dispose()
        yield url


@pytest.mark.parametrize(
    "arguments",
    [
        "report", "report --format csv", "report --json --per iteration",
        "report --format markdown --by pin_memory",
        "report --layout example",
        "report --json --where pin_memory=true --where hidden_dim>=8192",
        "status --json", "status cpu-quick", "show 2 --json", "report --format csv --per cell",
    ],
)  # fmt: skip
def test_the_same_text_from_both(results: Path, copied: str, arguments: str) -> None:
    words = arguments.split()
    one, other = (CliRunner().invoke(main, [*words, "--db", db]) for db in (str(results), copied))
    assert one.exit_code == other.exit_code == 0, one.output + other.output
    assert one.stdout == other.stdout
