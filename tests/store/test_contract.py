"""What every store must do, whatever the database below it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import OrchError, SweepRunning
from orchestrator.spec.cell import make_cell
from orchestrator.store import FailureKind, JobStatus, Store, Verdict
from orchestrator.store.queries_status import runner
from orchestrator.store.rows import AttemptEnd, ProbeRow
from tests.store.plans import (
    begin_one,
    deliver,
    iteration_record,
    make_plan,
    new_attempt,
    rank_records,
    write_spool,
)

OK = Verdict(JobStatus.ok)
CELLS = [make_cell({"hidden_dim": size}) for size in (64, 128, 256)]


def test_put_sweep_then_runnable_gives_the_plan_in_order(store: Store) -> None:
    cell = make_cell({"non_blocking": None, "dwell_s": 0.5}, {"zero_optimization": {"a": [1, 2]}}, {"X": "1"})
    plan = make_plan(cells=[cell, *CELLS], repeats=2)
    change = store.put_sweep(plan)
    assert (change.added, change.kept, change.vanished) == (8, 0, ())
    jobs = store.runnable(change.sweep_id)
    assert [(job.cell_values, job.repeat, job.position) for job in jobs] == [
        (item.cell, item.repeat, item.position) for item in plan.jobs
    ]
    assert store.counts(change.sweep_id)[JobStatus.pending] == 8


def test_attempt_from_claim_to_result(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path, hosts=["a"], device_uuids=["GPU-1"])
    assert (attempt.number, attempt.status, attempt.ranks) == (1, JobStatus.running, 1)
    assert attempt.device_uuids == ("GPU-1",)
    assert attempt.heartbeat_age_s is not None
    assert -1 < attempt.heartbeat_age_s < 60
    deliver(attempt, spool)
    count = store.intake(attempt.attempt_id, spool)
    assert (count.iterations, count.bad_lines, count.ranks_done) == (3, 0, frozenset({0}))
    assert store.records_complete(attempt.attempt_id) == {0}
    assert store.end_attempt(attempt.attempt_id, OK, wall_s=1.5, exit_status=0)
    [job] = [job for job in store.jobs(attempt.sweep_id) if job.job_id == attempt.job_id]
    assert (job.status, job.attempts, job.reason) == (JobStatus.ok, 1, None)
    columns, [row] = store.sql("SELECT * FROM job_summary WHERE status = 'ok'")
    summary = dict(zip(columns, row, strict=True))
    assert summary["offload_s_median"] == pytest.approx(0.115)
    assert summary["offload_cold_s"] == pytest.approx(0.1)
    assert summary["wall_s"] == 1.5
    assert bool(summary["is_valid"])
    ended = store.attempt(attempt.attempt_id)
    assert ended is not None
    assert ended.loop_s == 5.0
    assert ended.timed_from_at == "2026-07-01T12:00:00.000000Z"
    assert [event.to_status for event in store.events(attempt.job_id)] == ["running", "ok", "ok"]


def test_every_write_can_be_repeated(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan())
    job = store.runnable(change.sweep_id)[0]
    new = new_attempt(tmp_path)
    first = store.begin_attempt(job.job_id, new)
    again = store.begin_attempt(job.job_id, new)
    assert first is not None
    assert again is not None
    assert again.attempt_id == first.attempt_id
    spool = tmp_path / "spool"
    spool.mkdir()
    deliver(first, spool)
    assert store.intake(first.attempt_id, spool).iterations == 3
    assert store.intake(first.attempt_id, spool).iterations == 3
    assert store.sql("SELECT COUNT(*) FROM iteration")[1] == [(3,)]
    assert store.end_attempt(first.attempt_id, OK)
    events = store.events(job.job_id)
    assert store.end_attempt(first.attempt_id, OK)
    assert store.events(job.job_id) == events


def test_claimed_job_cannot_be_claimed_again(store: Store, tmp_path: Path) -> None:
    attempt, _ = begin_one(store, tmp_path)
    assert store.begin_attempt(attempt.job_id, new_attempt(tmp_path)) is None
    store.end_attempt(attempt.attempt_id, OK)
    assert store.begin_attempt(attempt.job_id, new_attempt(tmp_path)) is None
    assert store.begin_attempt(10**6, new_attempt(tmp_path)) is None


def test_retry_sets_the_job_back_to_pending(store: Store, tmp_path: Path) -> None:
    attempt, _ = begin_one(store, tmp_path)
    failed = Verdict(JobStatus.failed, FailureKind.port, "address in use\nsecond line")
    assert store.end_attempt(attempt.attempt_id, failed, retry=True)
    [job] = [job for job in store.runnable(attempt.sweep_id) if job.job_id == attempt.job_id]
    assert (job.status, job.attempts) == (JobStatus.pending, 1)
    again = store.begin_attempt(job.job_id, new_attempt(tmp_path))
    assert again is not None
    assert again.number == 2
    assert [one.message for one in store.attempts(job.job_id)] == ["address in use", None]


def test_retry_failed_adds_failures_and_nothing_else(store: Store, tmp_path: Path) -> None:
    statuses = [status for status in JobStatus if status.is_final]
    plan = make_plan(cells=[make_cell({"hidden_dim": n}) for n in range(1, len(statuses) + 2)])
    change = store.put_sweep(plan)
    for job, status in zip(store.runnable(change.sweep_id), statuses, strict=False):
        attempt = store.begin_attempt(job.job_id, new_attempt(tmp_path))
        assert attempt is not None
        assert store.end_attempt(attempt.attempt_id, Verdict(status, None, "why"))
    assert {job.status for job in store.runnable(change.sweep_id)} == {"pending", "cancelled", "lost"}
    asked = {job.status for job in store.runnable(change.sweep_id, retry_failed=True)}
    assert asked == {"pending", "cancelled", "lost", "failed", "timeout", "oom_gpu", "oom_host"}
    assert store.requeue(change.sweep_id, retry_failed=True) == 6
    assert store.counts(change.sweep_id)[JobStatus.pending] == 7


def test_skipped_verdict_skips_the_job_and_fails_the_attempt(store: Store, tmp_path: Path) -> None:
    attempt, _ = begin_one(store, tmp_path)
    store.end_attempt(attempt.attempt_id, Verdict(JobStatus.skipped, None, "fp16 on a CPU"))
    [one] = store.attempts(attempt.job_id)
    assert (one.status, one.failure_kind) == (JobStatus.failed, FailureKind.unsupported)
    [job] = store.jobs(attempt.sweep_id, [JobStatus.skipped])
    assert job.reason == "fp16 on a CPU"
    store.weigh(unskip=[job.job_id])
    assert store.jobs(attempt.sweep_id, [JobStatus.skipped]) == []


def test_weigh_skips_with_a_reason_and_leaves_running_jobs(store: Store, tmp_path: Path) -> None:
    attempt, _ = begin_one(store, tmp_path)
    other = store.jobs(attempt.sweep_id, [JobStatus.pending])[0]
    store.weigh(skip=[(attempt.job_id, "no"), (other.job_id, "too large")])
    store.weigh(skip=[(other.job_id, "too large")])
    assert store.counts(attempt.sweep_id)[JobStatus.running] == 1
    [job] = store.jobs(attempt.sweep_id, [JobStatus.skipped])
    assert (job.job_id, job.reason) == (other.job_id, "too large")
    assert len(store.events(other.job_id)) == 1


def test_stale_attempt_keeps_its_late_rows_and_loses_its_change_of_state(
    store: Store, tmp_path: Path
) -> None:
    attempt, spool = begin_one(store, tmp_path)
    store.end_attempt(attempt.attempt_id, Verdict(JobStatus.lost, None, "node gone"), retry=True)
    newer = store.begin_attempt(attempt.job_id, new_attempt(tmp_path))
    assert newer is not None
    deliver(attempt, spool)
    store.intake(attempt.attempt_id, spool)
    assert not store.end_attempt(attempt.attempt_id, OK)
    assert store.sql("SELECT attempt_id, COUNT(*) FROM iteration GROUP BY attempt_id")[1] == [
        (attempt.attempt_id, 3)
    ]
    assert any("refused" in (event.message or "") for event in store.events(attempt.job_id))
    assert [one.status for one in store.attempts(attempt.job_id)] == [JobStatus.lost, JobStatus.running]


def test_late_rows_of_an_ended_attempt_change_its_result(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path)
    deliver(attempt, spool, iterations=2)
    store.intake(attempt.attempt_id, spool)
    store.end_attempt(attempt.attempt_id, OK)
    deliver(attempt, spool, iterations=3)
    store.intake(attempt.attempt_id, spool)
    assert store.sql("SELECT warm_iterations FROM job_result")[1] == [(2,)]
    assert store.check() == []


def test_reap_takes_the_spool_in_and_tells_ok_from_lost(store: Store, tmp_path: Path) -> None:
    done, spool = begin_one(store, tmp_path)
    deliver(done, spool)
    partial, other_spool = begin_one(store, tmp_path)
    deliver(partial, other_spool, final=False)
    assert store.reap(done.sweep_id, lambda attempt: True) == []
    settled = store.reap(done.sweep_id, lambda attempt: False)
    assert [(one.attempt_id, one.status) for one in settled] == [
        (done.attempt_id, JobStatus.ok),
        (partial.attempt_id, JobStatus.lost),
    ]
    assert store.sql("SELECT COUNT(*) FROM iteration")[1] == [(6,)]
    assert store.sql("SELECT COUNT(*) FROM job_result WHERE is_valid")[1] == [(1,)]


@pytest.mark.parametrize(
    ("flag", "kind"), [("states_intact", "states_changed"), ("devices_ok", "wrong_device")]
)
def test_reap_judges_complete_records_by_the_hard_rule(
    store: Store, tmp_path: Path, flag: str, kind: str
) -> None:
    attempt, spool = begin_one(store, tmp_path)
    records = rank_records(attempt.uid, 0, 3)
    records[3][flag] = False
    write_spool(spool / "rank0.jsonl", records)
    [settled] = store.reap(attempt.sweep_id, lambda _: False)
    assert (settled.status, settled.failure_kind) == (JobStatus.failed, kind)


def test_lost_attempt_that_delivered_late_is_taken_in_and_not_run_again(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path)
    store.reap(attempt.sweep_id, lambda _: False)
    deliver(attempt, spool)
    [taken] = store.reap(attempt.sweep_id, lambda _: False)
    assert taken.status is JobStatus.ok
    assert attempt.job_id not in [job.job_id for job in store.runnable(attempt.sweep_id)]


def test_claim_next_gives_pending_jobs_that_fit_in_order(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan(cells=CELLS))
    claimed = store.claim_next(
        change.sweep_id, lambda _: new_attempt(tmp_path), lambda j: j.cell_values.values["hidden_dim"] != 64
    )
    assert claimed is not None
    assert claimed[0].cell == CELLS[1].key
    rest = [
        store.claim_next(change.sweep_id, lambda _: new_attempt(tmp_path), lambda _: True) for _ in range(3)
    ]
    assert [one and one[0].cell for one in rest] == [CELLS[0].key, CELLS[2].key, None]


def test_claim_next_stops_once_a_cancel_was_asked_for(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan())
    store.request_cancel("small")
    assert store.cancel_requested(change.sweep_id)
    assert store.claim_next(change.sweep_id, lambda _: new_attempt(tmp_path), lambda _: True) is None
    store.put_sweep(make_plan())
    assert not store.cancel_requested(change.sweep_id)


def test_end_attempts_ends_several_at_once(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan(cells=CELLS))
    begun = store.begin_attempts(
        [(job.job_id, new_attempt(tmp_path)) for job in store.runnable(change.sweep_id)]
    )
    endings = [AttemptEnd(one.attempt_id, JobStatus.ok, columns={"wall_s": 2.0}) for one in begun if one]
    assert store.end_attempts(endings) == [True] * 3
    assert store.counts(change.sweep_id)[JobStatus.ok] == 3


def test_heartbeat_is_on_the_databases_clock(store: Store, tmp_path: Path) -> None:
    attempt, _ = begin_one(store, tmp_path)
    store.attempt_update(attempt.attempt_id, device_uuids=["a", None], port=5)
    with store.session.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE attempt SET heartbeat = heartbeat - 1000")
    before = store.attempt(attempt.attempt_id)
    store.heartbeat([attempt.attempt_id])
    after = store.attempt(attempt.attempt_id)
    assert before is not None
    assert after is not None
    assert before.heartbeat_age_s is not None
    assert after.heartbeat_age_s is not None
    assert before.heartbeat_age_s > 900 > after.heartbeat_age_s
    assert (after.device_uuids, after.port) == (("a", None), 5)


def test_sweep_lock_refuses_a_second_orch_until_it_is_free(
    store: Store, database_url: str, opened: Callable[..., Store]
) -> None:
    store.put_sweep(make_plan())
    other = opened(database_url)
    store.set_owner(store.sweep("small").sweep_id, "another-host:1:1")
    assert runner(other, store.sweep("small")) is None
    with store.sweep_lock("small"):
        assert store.still_locked()
        # The server knows of its locks; beside a file, another host's orch shows itself by heartbeats alone.
        is_known = store.dialect == "postgresql"
        assert runner(other, store.sweep("small")) == ("another-host:1:1" if is_known else None)
        with pytest.raises(SweepRunning, match="small"), other.sweep_lock("small"):
            pass
        with other.sweep_lock("another"):
            pass
    with other.sweep_lock("small"):
        pass


def test_find_job_by_id_uid_cell_and_repeat(store: Store) -> None:
    change = store.put_sweep(make_plan(cells=CELLS, repeats=2))
    job = store.runnable(change.sweep_id)[4]
    short = job.cell_values.short
    for text in (str(job.job_id), job.uid[:12], f"{short}/2", job.cell + "/2"):
        assert store.find_job(text).job_id == job.job_id
    assert store.find_job(short).repeat == 1
    for text in ("", "zzz", f"{short}/9", f"{short}/x", f"{short}/1/2", f"{short}/", "%", "123456789"):
        with pytest.raises(OrchError, match=r"no job|means"):
            store.find_job(text)


def test_link_probes_around_a_job_give_its_share(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path, device_uuids=["GPU-1"])
    at = ("2026-07-01T11:59:00Z", "2026-07-01T14:30:00+02:00")
    kinds = [("down", True, 10.0), ("up", True, 20.0), ("down", False, 1.0)]
    probes = [
        [ProbeRow("h", "GPU-1", pinned, direction, 1 << 28, 5, 0.1, gbps, probed_at=when)
         for direction, pinned, gbps in kinds]
        for when in at
    ]  # fmt: skip
    assert store.put_probes(probes[0]) == []
    records = [
        dict(r, copied_bytes=10**9) if r["kind"] == "iteration" else r
        for r in rank_records(attempt.uid, 0, 3)
    ]
    write_spool(spool / "rank0.jsonl", records)
    store.intake(attempt.attempt_id, spool)
    store.end_attempt(attempt.attempt_id, OK)
    assert store.put_probes(probes[1]) == [attempt.job_id]
    columns = "offload_gbps, link_down_gbps, offload_link_share, link_up_gbps, probe_drift_share"
    [row] = store.sql(f"SELECT {columns} FROM job_result")[1]
    assert row == pytest.approx((1 / 0.115, 10.0, 0.1 / 0.115, 20.0, 0.0))


def test_nothing_but_reading_in_sql(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan())
    for query in (
        "DELETE FROM job", "UPDATE sweep SET name = 'x'", "DROP TABLE event", "CREATE TABLE t (x INTEGER)",
        "INSERT INTO counter VALUES ('x', 1)", "SELECT 1; DELETE FROM job", "ATTACH DATABASE 'x' AS y",
        "PRAGMA query_only = OFF", "PRAGMA journal_mode = DELETE", "COMMIT", "", ";", "SELEC 1",
        "SELECT nothing",
        "WITH gone AS (DELETE FROM job RETURNING 1) SELECT * FROM gone", "VACUUM", "BEGIN",
        "SELECT load_extension('x')",
        "ROLLBACK; BEGIN READ WRITE; DELETE FROM job; COMMIT",
        "SET TRANSACTION READ WRITE; DELETE FROM job; COMMIT",
        "SELECT 1; COMMIT; BEGIN READ WRITE; DELETE FROM job; COMMIT; SELECT 2", "SELECT 1; SELECT 2",
        "/* a note */ -- and\n DELETE FROM job", "EXPLAIN ANALYZE DELETE FROM job", "SHOW ALL; COMMIT",
        f"COPY job TO '{tmp_path / 'copied'}'",
    ):  # fmt: skip
        with pytest.raises(OrchError) as caught:
            store.sql(query)
        assert caught.value.exit_status == 2, query
        assert "\n" not in caught.value.render()
    assert store.counts(change.sweep_id)[JobStatus.pending] == 2
    assert not (tmp_path / "copied").exists()
    for query in (
        "SELECT '50%' AS share, ':x' AS name", "-- a note\nSELECT '50%' AS share, ':x' AS name;",
        "WITH one AS (SELECT '50%' AS share) SELECT share, ':x' AS name FROM one;\n",
    ):  # fmt: skip
        assert store.sql(query) == (["share", "name"], [("50%", ":x")])
    assert store.sql("SELECT 1 AS a, 2 AS a") == (["a", "a"], [(1, 2)])
    assert store.sql("SELECT job_id FROM job WHERE 1 = 0") == (["job_id"], [])
    assert store.sql("EXPLAIN SELECT 1")[1]


def test_a_misspelt_table_is_answered_with_tables_and_a_column_with_columns(store: Store) -> None:
    with pytest.raises(OrchError, match="did you mean iteration"):
        store.sql("SELECT 1 FROM iterations")
    with pytest.raises(OrchError, match="described in docs") as caught:
        store.sql("SELECT 1 FROM nope")  # "copies" is near, but a column
    assert "did you mean" not in caught.value.render()
    with pytest.raises(OrchError, match="did you mean offload_s_median"):
        store.sql("SELECT offload_s_medain FROM job_summary")


def test_errors_of_ranks_are_kept(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path)
    error = {"kind": "error", "rank": 0, "status": "oom_gpu", "failure_kind": None, "message": "no memory",
             "traceback": "Traceback\x00\nline"}  # fmt: skip
    write_spool(spool / "rank0.jsonl", [*rank_records(attempt.uid, 0, 2, final=False), error])
    store.intake(attempt.attempt_id, spool)
    [rank] = store.ranks(attempt.attempt_id)
    assert (rank.error_status, rank.message, rank.final_at) == ("oom_gpu", "no memory", None)
    assert rank.traceback == "Traceback\nline"
    assert store.records_complete(attempt.attempt_id) == frozenset()


def test_environment_records_are_shared_by_equal_stacks(store: Store, tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        attempt, spool = begin_one(store, tmp_path, make_plan(name))
        records = rank_records(attempt.uid, 0, 1)
        stack = {"kind": "environment", "host": "h", "torch": "2.13", "accelerator": "cpu",
                 "variables": {"A": "1"}, "gpu_count": 0, "new_key": 1}  # fmt: skip
        config = {"kind": "attempt", "ds_config": {"b": 1}, "tracked_objects": 5, "status": "ok", "job_id": 9}
        write_spool(spool / "rank0.jsonl", [records[0], stack, config, *records[1:]])
        assert store.intake(attempt.attempt_id, spool).bad_lines == 0
        after = store.attempt(attempt.attempt_id)
        assert after is not None
        ids.add(after.environment_id)
        assert after.status is JobStatus.running
        assert store.accelerator_of(attempt.job_id) == "cpu"
    assert len(ids) == 1
    [(variables, config_text)] = store.sql(
        "SELECT variables, ds_config FROM environment e JOIN attempt a ON a.environment_id = e.environment_id"
        " WHERE a.number = 1 ORDER BY a.attempt_id LIMIT 1"
    )[1]
    assert json.loads(variables) == {"A": "1"}
    assert json.loads(config_text) == {"b": 1}


def test_large_intake_is_complete(store: Store, tmp_path: Path) -> None:
    attempt, spool = begin_one(store, tmp_path)
    samples = [
        {"kind": "sample", "rank": 0, "sample": n, "phase": "sampler", "at_s": n / 50, "rss_bytes": 1 << 40}
        for n in range(12_000)
    ]
    records = [iteration_record(0, number) for number in range(400)]
    write_spool(spool / "rank0.jsonl", [*rank_records(attempt.uid, 0, 0), *records])
    write_spool(spool / "sampler.jsonl", samples)
    for _ in range(2):
        count = store.intake(attempt.attempt_id, spool)
        assert (count.iterations, count.samples, count.bad_lines) == (400, 12_000, 0)
    assert store.sql("SELECT COUNT(*), SUM(rss_bytes) FROM memory_sample")[1] == [(12_000, 12_000 << 40)]
    assert store.sql("SELECT COUNT(*) FROM iteration")[1] == [(400,)]
