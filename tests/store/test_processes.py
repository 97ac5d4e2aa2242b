"""Real processes on one database: writers, readers, the dead and their pids."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import DatabaseFull, SweepRunning
from orchestrator.spec.cell import make_cell
from orchestrator.store import JobStatus, Store, Verdict, open_store, owner_is_alive, this_owner
from orchestrator.store.owner import process_is_alive, start_ticks
from tests.store.plans import begin_one, deliver, make_plan, new_attempt, rank_records, write_spool

ROOT = Path(__file__).resolve().parents[2]


def _python(body: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body), *args],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def _forked(target: Callable[..., None], *args: Any) -> multiprocessing.process.BaseProcess:
    """A process that shares nothing with this one but the code that is imported already."""
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    return process


def _write_all(url: str, attempt_id: int, spool: Path, barrier: Any) -> None:
    with open_store(url) as store:
        lines = (spool / "all").read_bytes().splitlines(keepends=True)
        barrier.wait(60)
        with (spool / "rank0.jsonl").open("wb") as file:
            for start in range(0, len(lines), 125):
                file.writelines(lines[start : start + 125])
                file.flush()
                store.intake(attempt_id, spool)
                store.heartbeat([attempt_id])
        assert store.end_attempt(attempt_id, Verdict(JobStatus.ok))


def test_c1_sixteen_processes_write_and_no_row_is_lost(sqlite_store: Store, tmp_path: Path) -> None:
    store, processes, iterations = sqlite_store, 16, 500
    change = store.put_sweep(make_plan(cells=[make_cell({"hidden_dim": 64 + n}) for n in range(processes)]))
    barrier = multiprocessing.get_context("fork").Barrier(processes)
    writers = []
    for job in store.runnable(change.sweep_id):
        spool = tmp_path / str(job.job_id) / "spool"
        spool.mkdir(parents=True)
        attempt = store.begin_attempt(job.job_id, new_attempt(spool.parent))
        assert attempt is not None
        write_spool(spool / "all", rank_records(attempt.uid, 0, iterations))
        writers.append(_forked(_write_all, store.url, attempt.attempt_id, spool, barrier))
    for writer in writers:
        writer.join(240)
    assert [writer.exitcode for writer in writers] == [0] * processes
    assert store.sql("SELECT COUNT(*), COUNT(DISTINCT attempt_id) FROM iteration")[1] == [
        (processes * iterations, processes)
    ]
    assert store.counts(change.sweep_id)[JobStatus.ok] == processes
    assert store.check() == []


def _claim_all(url: str, sweep_id: int, barrier: Any, taken: Path) -> None:
    with open_store(url) as store, taken.open("w") as file:
        barrier.wait(60)
        while got := store.claim_next(sweep_id, lambda _: new_attempt("/x"), lambda _: True):
            print(got[0].job_id, file=file)
            store.end_attempt(got[1].attempt_id, Verdict(JobStatus.ok))


def test_c2_claims_that_read_and_then_write_take_each_job_once(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan(cells=[make_cell({"hidden_dim": n}) for n in range(1, 61)]))
    barrier = multiprocessing.get_context("fork").Barrier(4)
    files = [tmp_path / f"taken{n}" for n in range(4)]
    claimers = [_forked(_claim_all, store.url, change.sweep_id, barrier, file) for file in files]
    for claimer in claimers:
        claimer.join(120)
    assert [claimer.exitcode for claimer in claimers] == [0] * 4
    taken = sorted(int(job_id) for file in files for job_id in file.read_text().split())
    assert taken == sorted(job.job_id for job in store.jobs(change.sweep_id))


def test_c4_foreign_reader_all_along_loses_no_row(sqlite_store: Store, tmp_path: Path) -> None:
    store = sqlite_store
    change = store.put_sweep(make_plan(repeats=5))
    assert store.session.where.path is not None
    with closing(sqlite3.connect(store.session.where.path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN")
        assert foreign.execute("SELECT COUNT(*) FROM job").fetchone() == (10,)
        for job in store.runnable(change.sweep_id):
            spool = tmp_path / str(job.job_id) / "spool"
            spool.mkdir(parents=True)
            attempt = store.begin_attempt(job.job_id, new_attempt(spool.parent))
            assert attempt is not None
            deliver(attempt, spool, iterations=20)
            store.intake(attempt.attempt_id, spool)
            assert store.end_attempt(attempt.attempt_id, Verdict(JobStatus.ok))
        assert foreign.execute("SELECT COUNT(*) FROM iteration").fetchone() == (0,)
        foreign.execute("COMMIT")
        assert foreign.execute("SELECT COUNT(*) FROM iteration").fetchone() == (200,)


def _dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_c8_owner_whose_pid_is_used_again_is_dead(store: Store, tmp_path: Path) -> None:
    host = this_owner().partition(":")[0]
    reused = f"{host}:{os.getpid()}:{(start_ticks(os.getpid()) or 0) - 1}"
    attempt, _ = begin_one(store, tmp_path, owner=reused)
    mine, _ = begin_one(store, tmp_path)
    [settled] = store.reap(attempt.sweep_id)
    assert (settled.attempt_id, settled.status) == (attempt.attempt_id, JobStatus.lost)
    assert [one.attempt_id for one in store.running_attempts()] == [mine.attempt_id]


def test_owner_lives_by_its_process_here_and_by_its_heartbeat_elsewhere(store: Store, tmp_path: Path) -> None:
    host = this_owner().partition(":")[0]
    assert process_is_alive(this_owner())
    assert process_is_alive(f"{host}:{_dead_pid()}:5") is False
    assert process_is_alive("elsewhere:1:5") is None
    attempt, _ = begin_one(store, tmp_path, owner="elsewhere:1:5")
    assert owner_is_alive(attempt)
    with store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE attempt SET heartbeat = heartbeat - 1000")
    stale = store.attempt(attempt.attempt_id)
    assert stale is not None
    assert not owner_is_alive(stale)


_HOLDER = """
    import sys, time
    from orchestrator.store import open_store
    with open_store(sys.argv[1]) as store, store.sweep_lock("small"):
        print("held", flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, None])
def test_sweep_lock_is_free_the_moment_its_holder_is_dead(
    store: Store, database_url: str, opened: Callable[..., Store], how: signal.Signals | None
) -> None:
    store.put_sweep(make_plan())
    holder = _python(_HOLDER, store.url)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(SweepRunning) as caught, store.sweep_lock("small"):
        pass
    assert caught.value.exit_status == 4
    if how is not None:
        holder.send_signal(how)
    holder.communicate("go\n" if how is None else None, timeout=60)
    _wait_for_lock(store)


def _wait_for_lock(store: Store) -> None:
    """The server needs a moment to see the connection end; the kernel does not."""
    while True:
        try:
            with store.sweep_lock("small"):
                return
        except SweepRunning:
            assert store.dialect == "postgresql"


def test_full_disk_is_told_and_nothing_is_half_written(sqlite_store: Store) -> None:
    store = sqlite_store
    change = store.put_sweep(make_plan())
    plan = make_plan("large", [make_cell({"hidden_dim": n}) for n in range(1, 3000)])
    with closing(sqlite3.connect(str(store.session.where.path))) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    store.session.engine.dispose()

    @_on_connect(store)
    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")

    with pytest.raises(DatabaseFull, match="disk is full") as caught:
        store.put_sweep(plan)
    assert caught.value.exit_status == 3
    assert store.sweep_names() == ["small"]
    assert store.counts(change.sweep_id)[JobStatus.pending] == 2


def _on_connect(store: Store) -> Callable[[Callable[..., None]], Callable[..., None]]:
    from sqlalchemy import event

    return event.listens_for(store.session.engine, "connect")


_LIMITED = """
    import resource, signal, sys
    from orchestrator.errors import DatabaseError
    from orchestrator.spec.cell import make_cell
    from orchestrator.store import open_store
    from tests.store.plans import make_plan
    with open_store(sys.argv[1]) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        try:
            store.put_sweep(make_plan("large", [make_cell({"hidden_dim": n}) for n in range(1, 5000)]))
        except DatabaseError as e:
            print(type(e).__name__)
"""


def test_file_size_limit_is_told_as_full(sqlite_store: Store) -> None:
    sqlite_store.put_sweep(make_plan())
    sqlite_store.close()
    limited = _python(_LIMITED, sqlite_store.url, str(600_000))
    assert limited.communicate(timeout=60)[0] == "DatabaseFull\n"
    assert sqlite_store.sweep_names() == ["small"]
    assert sqlite_store.check() == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 600_000


def test_forked_child_and_parent_use_the_store_apart(store: Store) -> None:
    store.put_sweep(make_plan())
    child = os.fork()
    if child == 0:
        try:
            store.put_sweep(make_plan("of the child"))
            os._exit(0)
        except BaseException:
            os._exit(1)
    store.put_sweep(make_plan("of the parent"))
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(store.sweep_names()) == ["of the child", "of the parent", "small"]


def test_importing_the_store_brings_no_pandas() -> None:
    body = "import sys, orchestrator.store.opening, json; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(_python(body).communicate(timeout=60)[0])
    assert {"pandas", "numpy", "torch", "alembic", "psycopg"}.isdisjoint(modules)
