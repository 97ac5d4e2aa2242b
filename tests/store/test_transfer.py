"""Moving sweeps between databases without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import OrchError, SweepRunning
from orchestrator.spec.cell import make_cell
from orchestrator.store import FailureKind, JobStatus, Store, Verdict
from orchestrator.store.importing import import_into
from orchestrator.store.rows import ProbeRow
from orchestrator.store.tables import metadata
from orchestrator.store.transfer import transfer
from tests.store.plans import begin_one, deliver, make_plan, new_attempt, rank_records, write_spool

_OWN = frozenset("sweep_id job_id attempt_id environment_id probe_id event_id heartbeat owner".split())
"""Columns that are a database's own."""


def _fill(store: Store, tmp_path: Path, name: str = "small") -> int:
    plan = make_plan(name, repeats=2)
    failed, spool = begin_one(store, tmp_path, plan, device_uuids=["GPU-1"])
    deliver(failed, spool, final=False)
    store.intake(failed.attempt_id, spool)
    store.end_attempt(failed.attempt_id, Verdict(JobStatus.failed, FailureKind.killed, "SIGKILL"), retry=True)
    attempt, spool = begin_one(store, tmp_path, plan, device_uuids=["GPU-1"])
    sample = {"kind": "sample", "rank": 0, "sample": 0, "phase": "offloaded", "at_s": 0.5, "rss_bytes": 2**40}
    stack = {"kind": "environment", "host": "h", "torch": "2.13", "accelerator": "cuda"}
    write_spool(spool / "rank0.jsonl", [*rank_records(attempt.uid, 0, 4), stack, sample])
    store.intake(attempt.attempt_id, spool)
    store.end_attempt(attempt.attempt_id, Verdict(JobStatus.ok), wall_s=3.0, overlapped=False)
    store.put_probes(
        [
            ProbeRow(
                "h", "GPU-1", True, way, 1 << 28, 5, 0.005, 50.0, probed_at=at, sweep_id=attempt.sweep_id
            )
            for way in ("down", "up")
            for at in ("2026-07-01T11:00:00Z", "2026-07-01T13:00:00Z")
        ]
    )
    return attempt.sweep_id


def _content(store: Store, *, leave: frozenset[str] = frozenset()) -> dict[str, list[tuple[object, ...]]]:
    content = {}
    for name, table in metadata.tables.items():
        if name in ("counter", "alembic_version") or name in leave:
            continue
        columns = ", ".join(c.name for c in table.c if c.name not in _OWN)
        rows = store.sql(f"SELECT {columns} FROM {name}")[1]
        typed = [tuple(bool(v) if isinstance(v, bool) else v for v in row) for row in rows]
        content[name] = sorted(typed, key=str)
    return content


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def other(request: pytest.FixtureRequest, tmp_path: Path, opened: Callable[..., Store]) -> Iterator[Store]:
    """A second, empty database."""
    if request.param == "sqlite":
        yield opened(tmp_path / "other.db", create=True)
        return
    with request.getfixturevalue("postgres_server").database() as url:
        yield opened(url, create=True)


def test_transfer_there_and_back_loses_nothing(
    store: Store, other: Store, tmp_path: Path, opened: Callable[..., Store]
) -> None:
    _fill(store, tmp_path)
    done = transfer(store, other)
    assert (done.sweeps, done.jobs, done.attempts, done.iterations, done.samples) == (["small"], 4, 2, 7, 1)
    back = opened(tmp_path / "back.db", create=True)
    transfer(other, back)
    assert _content(store) == _content(other) == _content(back)
    assert other.check() == back.check() == []
    again = transfer(store, other)
    assert (again.jobs, again.attempts, again.iterations, again.samples) == (0, 0, 0, 0)
    assert _content(store) == _content(other)


def test_transfer_without_samples_leaves_them_out(store: Store, other: Store, tmp_path: Path) -> None:
    _fill(store, tmp_path)
    transfer(store, other, samples=False)
    assert other.sql("SELECT COUNT(*) FROM memory_sample")[1] == [(0,)]
    leave = frozenset({"memory_sample"})
    assert _content(store, leave=leave) == _content(other, leave=leave)


def test_transfer_merges_what_both_sides_measured_since(store: Store, other: Store, tmp_path: Path) -> None:
    _fill(store, tmp_path)
    transfer(store, other)
    for side in (store, other):
        _, spool = begin_one(side, tmp_path, make_plan(repeats=2))
        attempt = side.running_attempts()[0]
        deliver(attempt, spool)
        side.intake(attempt.attempt_id, spool)
        side.end_attempt(attempt.attempt_id, Verdict(JobStatus.lost if side is store else JobStatus.ok))
    done = transfer(other, store)
    assert (done.jobs, done.attempts, done.iterations) == (0, 1, 3)
    assert store.counts(store.latest_sweep().sweep_id)[JobStatus.ok] == 2
    assert store.check() == []
    job = store.jobs(store.latest_sweep().sweep_id)[1]
    assert [(one.number, one.status) for one in store.attempts(job.job_id)] == [(1, "lost"), (2, "ok")]


def test_sweeps_of_one_name_from_several_hosts_stay_apart(
    sqlite_store: Store, other: Store, tmp_path: Path
) -> None:
    _fill(sqlite_store, tmp_path)
    _fill(other, tmp_path)
    done = transfer(sqlite_store, other)
    assert (done.sweeps, done.renamed) == (["small-2"], {"small": "small-2"})
    assert "small (now small-2)" in done.told()
    assert transfer(sqlite_store, other).sweeps == ["small-2"]
    assert sorted(other.sweep_names()) == ["small", "small-2"]
    assert other.check() == []


def test_transfer_of_an_unknown_sweep_is_refused(sqlite_store: Store, other: Store, tmp_path: Path) -> None:
    _fill(sqlite_store, tmp_path)
    with pytest.raises(OrchError, match="no sweep 'x'"):
        transfer(sqlite_store, other, ["x"])
    assert other.sweep_names() == []


def test_example_log_becomes_a_sweep_with_its_trial_table(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "offload_states.log"
    log.write_text("0,0,9.5,3.28\n1,1,6.35,2.43\nTrue,True,6.25,2.5\n")
    done = import_into(store.url, str(log), known=["hidden_dim=32768", "dtype=bfloat16"])
    assert (done.sweeps, done.jobs) == (["offload_states"], 3)
    with log.open("a") as file:
        file.write("1,0,6.67,2.4\n")
    assert import_into(store.url, str(log), known=["hidden_dim=32768", "dtype=bfloat16"]).jobs == 1
    rows = store.sql(
        "SELECT trial, hidden_dim, pin0_nb0_offload_s, pin1_nb1_load_s, pin1_nb0_offload_s FROM example_table"
        " ORDER BY trial"
    )[1]
    assert rows == [(1, 32768, 9.5, 2.43, 6.67), (2, 32768, None, 2.5, None)]
    assert store.check() == []


@pytest.mark.parametrize("text", ["1,0,x,2", "1,0,1", "2,0,1,1", "1,0,nan,1", "1,0,-1,1", "\n\n"])
def test_bad_example_log_names_the_line(sqlite_store: Store, tmp_path: Path, text: str) -> None:
    log = tmp_path / "offload_states.log"
    log.write_text(f"{text}\n")
    with pytest.raises(OrchError, match=r"offload_states\.log") as caught:
        import_into(sqlite_store.url, str(log))
    assert caught.value.exit_status == 2
    assert sqlite_store.sweep_names() == []


def test_delete_takes_everything_of_the_sweep_and_nothing_else(store: Store, tmp_path: Path) -> None:
    _fill(store, tmp_path, "a")
    leave = frozenset({"environment", "link_probe"})
    before = _content(store, leave=leave)
    _fill(store, tmp_path, "b")
    running, _ = begin_one(store, tmp_path, make_plan("b", repeats=2))
    with pytest.raises(SweepRunning):
        store.delete_sweep("b")
    store.end_attempt(running.attempt_id, Verdict(JobStatus.cancelled))
    gone = store.delete_sweep("b")
    assert (gone.jobs, gone.attempts) == (4, 3)
    assert _content(store, leave=leave) == before
    assert store.check() == []


def test_check_finds_and_mends_what_is_wrong(store: Store, tmp_path: Path) -> None:
    sweep_id = _fill(store, tmp_path)
    with store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE job_result SET offload_s_median = 99")
        connection.exec_driver_sql("UPDATE counter SET next_id = 1 WHERE name = 'event'")
    found = [finding.what for finding in store.check()]
    assert len(found) == 2
    assert any("offload_s_median 99" in what for what in found)
    store.mend()
    assert store.check() == []
    with store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE job SET status = 'running' WHERE status = 'ok'")
    assert any("it is running" in finding.what for finding in store.check())
    assert store.counts(sweep_id)[JobStatus.running] == 1


def test_new_attempts_after_a_merge_get_free_ids(store: Store, other: Store, tmp_path: Path) -> None:
    _fill(store, tmp_path)
    transfer(store, other)
    change = other.put_sweep(make_plan("next", [make_cell({"hidden_dim": 7})]))
    job = other.runnable(change.sweep_id)[0]
    assert other.begin_attempt(job.job_id, new_attempt(tmp_path)) is not None
    assert other.check() == []
