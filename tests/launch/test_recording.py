"""Attempts that end in the database: by the supervisor, by a node, by a pilot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.launch.events import Waiting, event_to_line
from orchestrator.launch.node import read_reports
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.paths import AttemptPaths
from orchestrator.spec.load import parse_plan
from orchestrator.store import Store, open_store
from orchestrator.store.owner import this_owner
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import JobStatus
from tests.launch.conftest import Bench, wait_until

SPEC = """
name: launch
defaults: {iteration: 3, warmup: 1, hidden_dim: 8}
matrix: {nlayers: [1, 2, 3, 4]}
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A database with four pending jobs."""
    with open_store(f"sqlite:///{tmp_path}/orch.db", create=True) as store:
        store.put_sweep(parse_plan(SPEC), {})
        yield store


def begin(store: Store, folder: Path, owner: str) -> tuple[JobRow, AttemptRow]:
    """Begin an attempt of the first job that is pending."""
    job = store.runnable(store.sweep("launch").sweep_id)[0]
    uid = uuid.uuid4().hex
    attempt = store.begin_attempt(
        job.job_id,
        NewAttempt(
            uid=uid, engine="local", launcher="fork", run_dir=str(folder / "runs" / "s" / uid), owner=owner
        ),
    )
    assert attempt is not None
    return job, attempt


def order_for(bench: Bench, store: Store, worker: str, **fields: Any) -> LaunchOrder:
    """An order that is finished in the database."""
    job, attempt = begin(store, bench.folder, bench.client.owner)
    return replace(
        bench.order(worker, uid=attempt.uid, **fields),
        attempt_id=attempt.attempt_id,
        job_id=job.job_id,
        run_dir=attempt.run_dir,
        parameters=job.cell_values.values,
        db_url=store.url,
        finish=True,
    )


def test_ended_attempt_is_in_the_database_when_it_is_told(
    make_bench: Callable[..., Bench], store: Store
) -> None:
    bench = make_bench(db_url=store.url)
    order = order_for(bench, store, "benchmarks.noop_worker:main", launcher="fork")
    assert bench.run(order).verdict.status == "ok"
    attempt = store.attempt(order.attempt_id)
    assert attempt is not None
    assert (attempt.status, attempt.launch_mode) == ("ok", "fork")
    assert attempt.port is not None
    assert attempt.wall_s is not None
    assert attempt.timed_from_at is not None
    assert attempt.timed_to_at is not None
    assert store.records_complete(order.attempt_id) == {0}
    assert store.find_job(str(order.job_id)).status == JobStatus.ok


def test_failure_that_may_pass_makes_the_job_pending(make_bench: Callable[..., Bench], store: Store) -> None:
    bench = make_bench(db_url=store.url)
    order = order_for(bench, store, "killed_by_itself", retries_left=1)
    ended = bench.run(order)
    assert ended.retry
    attempt = store.attempt(order.attempt_id)
    assert attempt is not None
    assert (attempt.status, attempt.failure_kind, attempt.signal) == ("failed", "killed", 9)
    assert store.find_job(str(order.job_id)).status == JobStatus.pending


def test_database_away_the_end_waits_for_it(make_bench: Callable[..., Bench], store: Store) -> None:
    bench = make_bench(db_url=store.url)
    order = order_for(bench, store, "good")
    store.close()
    file = bench.folder / "orch.db"
    away = bench.folder / "away.db"
    os.rename(file, away)
    bench.client.start(order)
    final = Path(order.run_dir) / "spool" / "rank0.jsonl"
    wait_until(lambda: final.exists() and '"final"' in final.read_text(), "the final record")
    wait_until(lambda: not (Path(order.run_dir) / ".supervisor").exists(), "the end of the ranks")
    assert not file.exists()
    os.rename(away, file)
    assert bench.ended(order.attempt_uid).verdict.status == "ok"
    attempt = store.attempt(order.attempt_id)
    assert attempt is not None
    assert attempt.status == JobStatus.ok


def test_unreachable_database_is_told_as_soon_as_it_has_been_tried(bench: Bench, store: Store) -> None:
    order = replace(order_for(bench, store, "good"), db_url=str(bench.folder / "no" / "such.db"))
    code = "from orchestrator.launch import supervisor as s; s._UNRECORDED_S, s._LAST_WRITES_S = 1e6, 0.1"
    told = bench.folder / "told"
    with told.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{code}; s.main()"], stdin=subprocess.PIPE, stdout=file
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"op": "start", "order": order.to_json()}).encode() + b"\n")
    process.stdin.flush()
    waits = event_to_line(Waiting(order.attempt_uid, "database"))
    try:
        wait_until(lambda: waits in told.read_bytes(), "it waits for the database")
    finally:
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_orch_gone_attempts_end_as_cancelled_in_the_database(
    make_bench: Callable[..., Bench], store: Store
) -> None:
    bench = make_bench(db_url=store.url)
    order = order_for(bench, store, "waits")
    bench.client.start(order)
    wait_until((Path(order.run_dir) / "spool" / "rank0.jsonl").exists, "the rank")
    bench.client.close()
    attempt = store.attempt(order.attempt_id)
    assert attempt is not None
    assert (attempt.status, attempt.message) == ("cancelled", "orch went away")


def test_orch_gone_and_the_database_too_the_supervisor_does_not_stay(bench: Bench, store: Store) -> None:
    order = replace(order_for(bench, store, "waits"), db_url=str(bench.folder / "no" / "such.db"))
    code = "from orchestrator.launch import supervisor as s; s._LAST_WRITES_S = 0.1; s.main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"op": "start", "order": order.to_json()}).encode() + b"\n")
    process.stdin.flush()
    wait_until((Path(order.run_dir) / "spool" / "rank0.jsonl").exists, "the rank")
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    [settled] = store.reap(store.sweep("launch").sweep_id, lambda _: False)
    assert settled.status == JobStatus.lost


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )


def test_node_runs_its_ranks_and_leaves_the_result(bench: Bench) -> None:
    order = bench.order("good", ranks=2)
    file = bench.folder / "order.json"
    file.write_text(json.dumps(order.to_json()))
    process = _start("orchestrator.launch.node", "--order", str(file), "--node-rank", "0")
    process.communicate()
    assert process.returncode == 0
    [report] = read_reports(AttemptPaths(Path(order.run_dir)), 1)
    assert report.delivered
    assert not report.was_stopped


def test_b2_node_whose_rank_is_silent_fails(bench: Bench) -> None:
    order = bench.order("silent")
    file = bench.folder / "order.json"
    file.write_text(json.dumps({"nodes": [order.to_json()]}))
    process = _start("orchestrator.launch.node", "--order", str(file), "--node-rank", "0")
    process.communicate()
    assert process.returncode == 1


def test_node_of_a_scheduler_forks_its_ranks_before_it_loads_anything(bench: Bench) -> None:
    order = bench.order("good", ranks=2)
    file = bench.folder / "order.json"
    file.write_text(json.dumps({"nodes": [order.to_json()]}))
    process = _start("orchestrator.launch.node_start", "--order", str(file))
    process.communicate()
    assert process.returncode == 0
    [report] = read_reports(AttemptPaths(Path(order.run_dir)), 1)
    assert report.delivered


def test_two_nodes_agree_on_a_port_and_both_deliver(bench: Bench) -> None:
    whole = bench.order("good", ranks=2, num_nodes=2, timed_section=False)
    nodes = [replace(whole, ranks=(whole.ranks[rank],), node_rank=rank) for rank in (0, 1)]
    file = bench.folder / "order.json"
    file.write_text(json.dumps({"nodes": [node.to_json() for node in nodes]}))
    processes = [
        _start("orchestrator.launch.node", "--order", str(file), "--node-rank", str(rank)) for rank in (0, 1)
    ]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0, 0]
    paths = AttemptPaths(Path(whole.run_dir))
    assert [report.delivered for report in read_reports(paths, 2)] == [True, True]
    ports = {json.loads(paths.node_job_file(rank).read_text())["port"] for rank in (0, 1)}
    assert len(ports) == 1


def test_node_told_to_stop_ends_its_ranks(bench: Bench) -> None:
    order = bench.order("waits", grace_s=0.2)
    file = bench.folder / "order.json"
    file.write_text(json.dumps(order.to_json()))
    process = _start("orchestrator.launch.node", "--order", str(file), "--node-rank", "0")
    wait_until((Path(order.run_dir) / "spool" / "rank0.jsonl").exists, "the rank")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 1
    [report] = read_reports(AttemptPaths(Path(order.run_dir)), 1)
    assert report.was_stopped
    assert not report.delivered


def test_pilot_runs_what_is_pending_and_leaves(bench: Bench, store: Store) -> None:
    setting = bench.folder / "setting.json"
    setting.write_text(json.dumps({"worker": "benchmarks.noop_worker:main", "slots": 2, "engine_job": "77"}))
    process = _start(
        "orchestrator.launch.pilot", "--db", store.url, "--sweep", "launch", "--until",
        str(time.time() + 3600), "--setting", str(setting),
    )  # fmt: skip
    process.communicate()
    assert process.returncode == 0
    assert store.counts(store.sweep("launch").sweep_id)[JobStatus.ok] == 4


def test_pilot_claims_nothing_when_its_time_is_up(bench: Bench, store: Store) -> None:
    process = _start(
        "orchestrator.launch.pilot", "--db", store.url, "--sweep", "launch", "--until", str(time.time() + 5)
    )
    process.communicate()
    assert process.returncode == 0
    assert store.counts(store.sweep("launch").sweep_id)[JobStatus.pending] == 4


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ({"db_url": "orch.db"}, "no sweep"),
        ({"db_url": "orch.db", "sweep": "s", "slot": 1}, "unknown setting slot"),
    ],
)
def test_pilot_without_a_whole_setting_says_what_is_wrong(
    tmp_path: Path, setting: dict[str, object], what: str
) -> None:
    path = tmp_path / "setting.json"
    path.write_text(json.dumps(setting))
    command = [sys.executable, "-m", "orchestrator.launch.pilot", "--setting", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"{path}: {what}\n"


def test_attempt_of_a_dead_supervisor_is_reaped(make_bench: Callable[..., Bench], store: Store) -> None:
    bench = make_bench(db_url=store.url)
    order = order_for(bench, store, "waits")
    bench.client.start(order)
    wait_until((Path(order.run_dir) / "spool" / "rank0.jsonl").exists, "the rank")
    os.kill(bench.client.pid, signal.SIGKILL)
    wait_until(lambda: not bench.client.alive, "the supervisor's death")
    [settled] = store.reap(store.sweep("launch").sweep_id)
    assert settled.status == JobStatus.lost
    assert this_owner() != bench.client.owner
