"""A PostgreSQL server that goes away and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import DatabaseUnreachable, SweepRunning
from orchestrator.spec.cell import make_cell
from orchestrator.store import JobStatus, Verdict, open_store
from tests.postgres import PostgresServer, private_server, server_programs
from tests.store.plans import begin_one, deliver, make_plan, new_attempt

pytestmark = pytest.mark.postgres


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test may stop."""
    programs = server_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine")
    with private_server(programs) as server:
        yield server


def test_restarts_in_mid_write_lose_nothing(own_server: PostgresServer, tmp_path: Path) -> None:
    with open_store(own_server.new_database(), create=True, patience_s=60.0) as store:
        change = store.put_sweep(make_plan(cells=[make_cell({"hidden_dim": n}) for n in range(1, 61)]))
        done, failures = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                for job in store.runnable(change.sweep_id):
                    spool = tmp_path / str(job.job_id) / "spool"
                    spool.mkdir(parents=True)
                    attempt = store.begin_attempt(job.job_id, new_attempt(spool.parent))
                    assert attempt is not None
                    deliver(attempt, spool, iterations=300)
                    store.intake(attempt.attempt_id, spool)
                    assert store.end_attempt(attempt.attempt_id, Verdict(JobStatus.ok))
            except BaseException as e:
                failures.append(e)
            finally:
                done.set()

        thread = threading.Thread(target=work)
        thread.start()
        restarts = 0
        while not done.wait(0.2) and restarts < 4:
            own_server.stop("immediate")
            own_server.start()
            restarts += 1
        thread.join()
        assert failures == []
        assert restarts > 0
        assert store.sql("SELECT COUNT(*) FROM iteration")[1] == [(60 * 300,)]
        assert store.counts(change.sweep_id)[JobStatus.ok] == 60
        assert store.check() == []


def test_server_away_beyond_the_patience_is_one_line(own_server: PostgresServer, tmp_path: Path) -> None:
    with open_store(own_server.new_database(), create=True, patience_s=0.3) as store:
        attempt, spool = begin_one(store, tmp_path)
        own_server.stop("immediate")
        deliver(attempt, spool)
        with pytest.raises(DatabaseUnreachable, match="no answer") as caught:
            store.intake(attempt.attempt_id, spool)
        assert "\n" not in caught.value.render()
        own_server.start()
        assert store.intake(attempt.attempt_id, spool).iterations == 3


def test_sweep_lock_survives_a_restart_unless_another_took_it(own_server: PostgresServer) -> None:
    url = own_server.new_database()
    with open_store(url, create=True) as store, open_store(url) as other, store.sweep_lock("small"):
        own_server.stop("fast")
        own_server.start()
        assert store.still_locked()
        with pytest.raises(SweepRunning), other.sweep_lock("small"):
            pass
