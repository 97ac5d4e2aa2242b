"""Writes the small database that every schema version leaves behind for the tests of upgrades.

python -m tests.store.make_old_version

Run it before a new version is begun; a file of a released version is never written again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from orchestrator.store import FailureKind, JobStatus, Verdict, open_store
from orchestrator.store.rows import ProbeRow
from orchestrator.store.schema import SCHEMA_VERSION
from orchestrator.store.transfer import transfer
from tests.postgres import private_server, server_programs
from tests.store.plans import begin_one, deliver, make_plan, rank_records, write_spool

FIXTURES = Path(__file__).parent / "fixtures"


def main() -> None:
    """A sweep of four jobs: one ok after a failed attempt, one lost, two pending."""
    programs = server_programs()
    assert programs is not None, "this needs a PostgreSQL server"
    with tempfile.TemporaryDirectory() as folder, private_server(programs) as server:
        path = Path(folder) / "old.db"
        url = server.new_database()
        with open_store(str(path), create=True) as store, open_store(url, create=True) as copy:
            _fill(store, Path(folder))
            transfer(store, copy)
        with closing(sqlite3.connect(path)) as connection:
            text = "\n".join(connection.iterdump()) + "\n"
        (FIXTURES / f"v{SCHEMA_VERSION}.sqlite.sql").write_text(text.replace(folder, "/runs"))
        dump = server.run("pg_dump", "--no-owner", "--inserts", url).stdout
        (FIXTURES / f"v{SCHEMA_VERSION}.postgresql.sql").write_text(dump.replace(folder, "/runs"))


def _fill(store: object, folder: Path) -> None:
    from orchestrator.store import Store

    assert isinstance(store, Store)
    plan = make_plan("old", repeats=2)
    failed, _ = begin_one(store, folder, plan, owner="host:1:1")
    store.end_attempt(failed.attempt_id, Verdict(JobStatus.failed, FailureKind.port, "in use"), retry=True)
    attempt, spool = begin_one(store, folder, plan, owner="host:1:1", device_uuids=["GPU-1"])
    stack = {"kind": "environment", "host": "h", "torch": "2.13", "accelerator": "cpu"}
    sample = {"kind": "sample", "rank": 0, "sample": 0, "phase": "offloaded", "at_s": 0.5}
    write_spool(spool / "rank0.jsonl", [*rank_records(attempt.uid, 0, 4), stack, sample])
    store.intake(attempt.attempt_id, spool)
    store.end_attempt(attempt.attempt_id, Verdict(JobStatus.ok))
    lost, spool = begin_one(store, folder, plan, owner="host:1:1")
    deliver(lost, spool, final=False)
    store.reap(lost.sweep_id, lambda _: False)
    store.put_probes([ProbeRow("h", "GPU-1", True, "down", 1 << 28, 5, 0.005, 50.0, sweep_id=lost.sweep_id)])


if __name__ == "__main__":
    main()
