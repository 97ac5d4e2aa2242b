"""The supervisor with real processes: how attempts end, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.launch import ports
from orchestrator.launch.cleanup import sweep
from orchestrator.launch.events import Notice, Started, Timed, Waiting
from orchestrator.launch.hoststate import TimedSection
from orchestrator.launch.order import RankPlacement
from orchestrator.launch.processes import descendants, stat_of
from tests.launch.conftest import Bench, processes_of, wait_until

LAUNCHERS = ["spawn", "fork"]
both = pytest.mark.parametrize("launcher", LAUNCHERS)


def started(bench: Bench, uid: str) -> Started:
    """Wait until the attempt's ranks exist."""
    event = bench.until(lambda e: isinstance(e, Started) and e.attempt_uid == uid, "the start")
    assert isinstance(event, Started)
    return event


def spool_text(order_dir: str, rank: int = 0) -> str:
    """What a rank has recorded so far."""
    path = Path(order_dir) / "spool" / f"rank{rank}.jsonl"
    return path.read_text() if path.exists() else ""


def rank_pid(order_dir: str, rank: int = 0) -> int:
    """The pid in a rank's start record."""
    wait_until(lambda: "timed_from" in spool_text(order_dir, rank), "the rank's start")
    return int(json.loads(spool_text(order_dir, rank).splitlines()[0])["pid"])


@both
def test_good_ranks_are_ok(bench: Bench, launcher: str) -> None:
    order = bench.order("good", ranks=2, launcher=launcher)
    ended = bench.run(order)
    assert ended.verdict.status == "ok"
    assert not ended.retry
    assert started(bench, order.attempt_uid).launch_mode == launcher
    timed = [e.on for e in bench.said if isinstance(e, Timed)]
    assert timed == [True, False]


@both
def test_b7_rank_finds_the_environment_it_was_given(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    for name in ("RANK", "LOCAL_SIZE", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.setenv(name, "77")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    bench = make_bench()
    order = bench.order(
        "tells_surroundings",
        launcher=launcher,
        accelerator="cuda",
        ranks=2,
        parameters={"iteration": 0, "pin_backend": "host_register:4"},
        env={"NCCL_DEBUG": "WARN", "MY_OWN": "x"},
    )
    placed = (RankPlacement(0, 0, 3, "GPU-bbb"), RankPlacement(1, 1, 2, "GPU-aaa"))
    assert bench.run(replace(order, ranks=placed)).verdict.status == "ok"
    found = json.loads((Path(order.run_dir) / "found1.json").read_text())
    env = found["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "3,2"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == ("1", "1", "2")
    assert env["MASTER_PORT"] == str(started(bench, order.attempt_uid).port)
    assert "LOCAL_SIZE" not in env
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["DS_ACCELERATOR"] == "cuda"
    settings = "pinned_use_cuda_host_register:True,pinned_num_register_threads:4"
    assert env["PYTORCH_CUDA_ALLOC_CONF"] == settings
    assert (env["NCCL_DEBUG"], env["MY_OWN"], env["ORCH_ATTEMPT"]) == ("WARN", "x", order.attempt_uid)
    assert found["cwd"] == order.run_dir
    assert found["sid"] == found["pid"]
    assert found["frozen"] == 0
    # Standard descriptors, the found file's own and the listing's: nothing of the server's or supervisor's.
    assert len(found["fds"]) <= 6


@both
def test_cpu_rank_keeps_the_visible_devices_of_its_orch(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    bench = make_bench()
    order = bench.order("tells_surroundings", launcher=launcher, parameters={"iteration": 0})
    assert bench.run(order).verdict.status == "ok"
    assert json.loads((Path(order.run_dir) / "found0.json").read_text())["env"]["CUDA_VISIBLE_DEVICES"] == ""


def test_job_file_is_private_and_the_attempt_stays_unmarked(bench: Bench) -> None:
    order = bench.order("good")
    bench.run(order)
    assert (Path(order.run_dir) / "job.json").stat().st_mode & 0o777 == 0o600
    assert not (Path(order.run_dir) / ".supervisor").exists()


@both
def test_b1_rank_that_leaves_with_0_before_its_final_record_is_no_result(bench: Bench, launcher: str) -> None:
    ended = bench.run(bench.order("silent", launcher=launcher, retries_left=1))
    assert (ended.verdict.status, ended.verdict.failure_kind) == ("failed", "no_result")
    assert ended.retry


@both
def test_b3_rank_killed_by_sigkill_is_named(bench: Bench, launcher: str) -> None:
    ended = bench.run(bench.order("killed_by_itself", ranks=2, launcher=launcher))
    assert (ended.verdict.status, ended.verdict.failure_kind) == ("failed", "killed")
    assert ended.verdict.message == "rank 0 was killed by SIGKILL"


@both
@pytest.mark.parametrize("worker", ["leaves_a_grandchild", "dies_with_grandchild"])
def test_b4_grandchild_that_hides_is_gone_after_the_job(bench: Bench, launcher: str, worker: str) -> None:
    order = bench.order(worker, launcher=launcher)
    bench.run(order)
    pid = int((Path(order.run_dir) / "grandchild.pid").read_text())
    assert stat_of(pid) is None


def test_b4_grandchild_beside_a_running_attempt_is_gone_and_the_other_lives(bench: Bench) -> None:
    other = bench.order("waits_for_go", timed_section=False)
    bench.client.start(other)
    rank_pid(other.run_dir)
    order = bench.order("hides_and_waits", timed_section=False)
    bench.client.start(order)
    wait_until((Path(order.run_dir) / "grandchild.pid").exists, "the grandchild")
    bench.client.stop(order.attempt_uid, "enough")
    assert bench.ended(order.attempt_uid).verdict.status == "cancelled"
    assert stat_of(int((Path(order.run_dir) / "grandchild.pid").read_text())) is None
    (Path(other.run_dir) / "go").touch()
    assert bench.ended(other.attempt_uid).verdict.status == "ok"


def test_b9_stranger_on_the_port_is_an_infrastructure_failure(bench: Bench, stranger: socket.socket) -> None:
    ended = bench.run(bench.order("binds", port=stranger.getsockname()[1]))
    assert (ended.verdict.status, ended.verdict.failure_kind) == ("failed", "port")
    assert ended.retry


def test_b9_two_jobs_at_once_have_different_ports_that_are_free(bench: Bench) -> None:
    orders = [bench.order("binds", timed_section=False) for _ in range(2)]
    for order in orders:
        bench.client.start(order)
    for order in orders:
        rank_pid(order.run_dir)
        (Path(order.run_dir) / "go").touch()
    assert [bench.ended(order.attempt_uid).verdict.status for order in orders] == ["ok", "ok"]
    assert len({started(bench, order.attempt_uid).port for order in orders}) == 2


def test_b9_leases_of_two_orchs_differ_and_avoid_strangers(tmp_path: Path) -> None:
    leases = [ports.lease_port(tmp_path) for _ in range(20)]
    assert len({lease.port for lease in leases}) == 20
    assert all(lease.port in ports.port_range() for lease in leases)
    for lease in leases:
        lease.release()


@both
def test_b12_50_mb_without_a_newline_is_capped_and_succeeds(bench: Bench, launcher: str) -> None:
    order = bench.order("loud", launcher=launcher)
    assert bench.run(order).verdict.status == "ok"
    log = (Path(order.run_dir) / "rank0.log").read_bytes()
    assert len(log) < 20 << 20
    assert b"the log was capped" in log
    assert log.startswith(b"\xff\xfe")
    assert log.endswith(b"the end")


def test_exception_is_told_with_its_last_line(bench: Bench) -> None:
    ended = bench.run(bench.order("raises", launcher="fork"))
    assert ended.verdict.failure_kind == "exception"
    assert "no such thing as a free lunch" in (ended.verdict.message or "")


def test_changed_states_fail_the_attempt(bench: Bench) -> None:
    assert bench.run(bench.order("changes_states", ranks=2)).verdict.failure_kind == "states_changed"


@both
def test_timeout_ends_a_rank_that_ignores_term(bench: Bench, launcher: str) -> None:
    order = bench.order("ignores_term", launcher=launcher, timeout_s=0.5, grace_s=0.2)
    ended = bench.run(order)
    assert (ended.verdict.status, ended.verdict.message) == ("timeout", "not done within 0.5 s")


def test_hang_without_records_is_its_own_kind(bench: Bench) -> None:
    ended = bench.run(bench.order("waits", hang_s=0.3))
    assert (ended.verdict.status, ended.verdict.failure_kind) == ("failed", "hang")


def test_start_timeout_ends_what_never_measures(bench: Bench) -> None:
    ended = bench.run(bench.order("never_begins", start_timeout_s=0.3))
    assert ended.verdict.status == "timeout"
    assert "nothing was measured" in (ended.verdict.message or "")


def test_delivered_rank_that_hangs_in_teardown_is_ok(bench: Bench) -> None:
    assert bench.run(bench.order("delivers_and_hangs", grace_s=0.2)).verdict.status == "ok"


@both
def test_b5_stop_ends_as_cancelled(bench: Bench, launcher: str) -> None:
    order = bench.order("waits", ranks=2, launcher=launcher)
    bench.client.start(order)
    pid = rank_pid(order.run_dir)
    bench.client.stop(order.attempt_uid, "cancelled by the user")
    ended = bench.ended(order.attempt_uid)
    assert (ended.verdict.status, ended.verdict.message) == ("cancelled", "cancelled by the user")
    assert stat_of(pid) is None


def test_b5_kill_all_does_not_wait_for_the_grace(bench: Bench) -> None:
    order = bench.order("ignores_term", grace_s=3600.0)
    bench.client.start(order)
    rank_pid(order.run_dir)
    bench.client.stop(order.attempt_uid, "first")
    bench.client.kill_all()
    assert bench.ended(order.attempt_uid).verdict.message == "first"


def test_timed_sections_of_two_supervisors_take_turns(make_bench: Callable[..., Bench]) -> None:
    one, two = make_bench(), make_bench()
    first, second = one.order("waits_for_go"), two.order("waits_for_go")
    one.client.start(first)
    rank_pid(first.run_dir)
    two.client.start(second)
    two.until(lambda e: isinstance(e, Waiting), "waiting")
    assert spool_text(second.run_dir) == ""
    Path(second.run_dir).mkdir(parents=True)
    (Path(second.run_dir) / "go").touch()
    (Path(first.run_dir) / "go").touch()
    assert one.ended(first.attempt_uid).verdict.status == "ok"
    assert two.ended(second.attempt_uid).verdict.status == "ok"


def test_timed_section_goes_to_who_has_waited(tmp_path: Path) -> None:
    holder, waiter = TimedSection(tmp_path), TimedSection(tmp_path)
    assert holder.try_acquire()
    assert not waiter.try_acquire()
    holder.release()
    assert not holder.try_acquire()
    assert waiter.try_acquire()
    waiter.release()
    assert holder.try_acquire()
    holder.release()


def test_untimed_attempts_run_at_once(bench: Bench) -> None:
    orders = [bench.order("waits_for_go", timed_section=False) for _ in range(2)]
    for order in orders:
        bench.client.start(order)
    for order in orders:
        rank_pid(order.run_dir)
    for order in orders:
        (Path(order.run_dir) / "go").touch()
        assert bench.ended(order.attempt_uid).verdict.status == "ok"


def test_contention_neighbours_run_before_and_stop_after(bench: Bench) -> None:
    order = bench.order(
        "beside_a_neighbour", neighbours=((RankPlacement(0, 0),), (RankPlacement(0, 0),)), launcher="fork"
    )
    assert bench.run(order).verdict.status == "ok"
    for number in (1, 2):
        assert (Path(order.run_dir) / f"neighbour{number}" / "stopped").exists()
        begun = spool_text(f"{order.run_dir}/neighbour{number}").splitlines()[1]
        measured = spool_text(order.run_dir).splitlines()[0]
        assert json.loads(begun)["at"] < json.loads(measured)["at"]


def test_killed_server_fails_its_job_as_infrastructure_and_is_replaced(bench: Bench) -> None:
    order = bench.order("waits", ranks=2, launcher="fork")
    bench.client.start(order)
    pid = rank_pid(order.run_dir)
    stat = stat_of(pid)
    assert stat is not None
    os.kill(stat.parent, signal.SIGKILL)
    ended = bench.ended(order.attempt_uid)
    assert (ended.verdict.failure_kind, ended.verdict.message) == ("killed", "the fork server died")
    assert ended.retry
    assert stat_of(pid) is None
    assert bench.run(bench.order("good", launcher="fork")).verdict.status == "ok"
    assert any(isinstance(e, Notice) and "fork server died" in e.text for e in bench.said)


def test_unsafe_server_refuses_and_spawn_takes_over(bench: Bench) -> None:
    order = bench.order("tests.launch.threaded:good", launcher="fork")
    assert bench.run(order).verdict.status == "ok"
    event = started(bench, order.attempt_uid)
    assert event.launch_mode == "spawn"
    assert event.note is not None
    assert event.note.startswith("spawn instead of fork: the fork server has 2 threads (")


def test_server_that_cannot_import_falls_back_to_spawn(bench: Bench) -> None:
    order = bench.order("no_such_module_anywhere:main", launcher="fork")
    ended = bench.run(order)
    assert ended.verdict.failure_kind == "exception"
    assert "no_such_module_anywhere" in (ended.verdict.message or "")


@both
def test_orch_gone_stops_everything(bench: Bench, launcher: str) -> None:
    order = bench.order("ignores_term", launcher=launcher, grace_s=0.2)
    bench.client.start(order)
    pid = rank_pid(order.run_dir)
    bench.client.close()
    assert not bench.client.alive
    assert stat_of(pid) is None
    [ended] = [e for e in bench.client.events() if getattr(e, "verdict", None) is not None]
    assert ended.verdict.message == "orch went away"  # type: ignore[union-attr]


@both
def test_killed_supervisor_leaves_nothing_that_a_sweep_does_not_end(bench: Bench, launcher: str) -> None:
    order = bench.order("hides_and_waits", launcher=launcher)
    bench.client.start(order)
    pid = rank_pid(order.run_dir)
    wait_until((Path(order.run_dir) / "grandchild.pid").exists, "the grandchild")
    os.kill(bench.client.pid, signal.SIGKILL)
    wait_until(lambda: not bench.client.alive, "the supervisor's death")
    wait_until(lambda: stat_of(pid) is None or stat_of(pid).state == "Z", "the rank's death")  # type: ignore[union-attr]
    grandchild = int((Path(order.run_dir) / "grandchild.pid").read_text())
    assert grandchild in sweep(bench.folder / "runs")
    assert processes_of(bench.folder) == []


def test_both_server_and_supervisor_killed_leave_nothing(bench: Bench) -> None:
    order = bench.order("hides_and_waits", launcher="fork")
    bench.client.start(order)
    rank_pid(order.run_dir)
    wait_until((Path(order.run_dir) / "grandchild.pid").exists, "the grandchild")
    everything = descendants([bench.client.pid])
    for pid in sorted(everything & {bench.client.pid, *_servers(bench.client.pid)}):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not bench.client.alive, "the supervisor's death")
    sweep(bench.folder / "runs")
    wait_until(lambda: processes_of(bench.folder) == [], "an empty host")


def _servers(supervisor: int) -> list[int]:
    return [pid for pid in descendants([supervisor]) if (stat := stat_of(pid)) and stat.parent == supervisor]


def test_term_ends_the_supervisor_in_order(bench: Bench) -> None:
    order = bench.order("waits", grace_s=0.2)
    bench.client.start(order)
    pid = rank_pid(order.run_dir)
    os.kill(bench.client.pid, signal.SIGTERM)
    wait_until(lambda: not bench.client.alive, "the supervisor's end")
    assert stat_of(pid) is None


def test_job_that_cannot_start_is_told(bench: Bench) -> None:
    blocker = bench.folder / "file"
    blocker.touch()
    ended = bench.run(bench.order("good", run_dir=str(blocker / "below")))
    assert ended.verdict.failure_kind == "exception"
    assert "could not be started" in (ended.verdict.message or "")


def test_unknown_pin_backend_is_unsupported(bench: Bench) -> None:
    ended = bench.run(bench.order("good", parameters={"iteration": 0, "pin_backend": "magic"}))
    assert ended.verdict.failure_kind == "unsupported"
