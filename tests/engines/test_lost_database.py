"""A sweep whose database is away: what it holds of the host, and what other sweeps do meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.places import ClusterPlace
from tests.engines import acting_worker as act
from tests.engines.kill_rounds import held_locks
from tests.engines.running import Workplace, wait_until
from tests.postgres import PostgresServer

pytestmark = pytest.mark.postgres

JOBS = 5


@pytest.fixture
def lost(own_server: PostgresServer, tmp_path: Path) -> ClusterPlace:
    """Where the sweep runs whose server goes away."""
    (tmp_path / "lost").mkdir()
    return ClusterPlace(tmp_path / "lost", db=own_server.new_database())


@pytest.fixture
def other(lost: ClusterPlace, tmp_path: Path) -> Workplace:
    """Another folder and another database on the same host."""
    (tmp_path / "other").mkdir()
    place = Workplace(tmp_path / "other")
    place.environment["ORCH_STATE_DIR"] = lost.environment["ORCH_STATE_DIR"]
    return place


@contextmanager
def told(place: Workplace, spec: Path) -> Iterator[tuple[subprocess.Popen[Any], Path]]:
    """A sweep whose progress goes to a file."""
    errors = place.folder / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            place.command("sweep", spec, *place.options), cwd=place.folder, env=place.environment,
            stdout=subprocess.DEVNULL, stderr=file, start_new_session=True,
        )  # fmt: skip
        try:
            yield process, errors
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def begun(place: Workplace) -> int:
    """Attempts that have a run directory."""
    return len(list((place.folder / "orch-runs").glob("*/*/spool")))


def test_slots_of_a_sweep_that_waits_for_its_database_are_used_by_another_meanwhile(
    own_server: PostgresServer, lost: ClusterPlace, other: Workplace
) -> None:
    state = Path(lost.environment["ORCH_STATE_DIR"])
    with told(lost, lost.spec(JOBS, micro_batch=act.WAITS_FOR_GO)) as (waiting, errors):
        running = "select 1 from attempt where status = 'running' and started_at is not null"
        wait_until(lambda: len(lost.query(running)) == 2, "two jobs run")
        with told(other, other.spec(3, name="one")) as (working, progress):
            wait_until(
                lambda: "0/3 ✓ 0 ✗ 0 · waits for free slots: another orch uses them" in progress.read_text(),
                "the other sweep says what it waits for",
            )
            own_server.stop("immediate")
            (lost.folder / "go").touch()
            assert working.wait(120) == 0, progress.read_text()
        assert other.statuses() == {"ok": 3}
        wait_until(lambda: "waits for the database" in errors.read_text(), "it says what it waits for")
        wait_until(lambda: held_locks(state) == [], f"nothing of the host is held: {held_locks(state)}")
        # Two free slots and jobs that wait, but nothing that could record them.
        assert begun(lost) == 2
        assert waiting.poll() is None
        own_server.start()
        assert waiting.wait(120) == 0, errors.read_text()
    assert lost.statuses() == {"ok": JOBS}
    assert lost.query("select count(*) as n from attempt") == [{"n": JOBS}]
    assert "Traceback" not in errors.read_text()
    lost.wait_for_no_survivors()
    other.wait_for_no_survivors()


def test_job_that_still_runs_keeps_its_slot_and_an_ended_one_gives_its_own_back(
    own_server: PostgresServer, lost: ClusterPlace, other: Workplace
) -> None:
    state = Path(lost.environment["ORCH_STATE_DIR"])
    spec = lost.spec(micro_batch=[act.SLOW_ONCE, act.WAITS_FOR_GO])
    with told(lost, spec) as (waiting, errors):
        running = "select run_dir from attempt where status = 'running' and started_at is not null"
        rows = wait_until(lambda: len(found := lost.query(running)) == 2 and found, "two jobs run")
        own_server.stop("immediate")
        for row in rows:
            (Path(row["run_dir"]) / "go-on").touch()
        wait_until(lambda: len(_held_slots(state)) == 1, "one of the two slots is free")
        assert other.sweep(other.spec(3, name="one")).returncode == 0
        assert len(_held_slots(state)) == 1
        own_server.start()
        (lost.folder / "go").touch()
        assert waiting.wait(120) == 0, errors.read_text()
    assert lost.statuses() == {"ok": 2}
    assert held_locks(state) == []
    lost.wait_for_no_survivors()


def _held_slots(state: Path) -> list[str]:
    return [name for name in held_locks(state) if name.startswith("slot-")]
