"""What dead attempts leave on the host, and what is not theirs: processes, shared memory, shells."""

from __future__ import annotations

import json
import mmap
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.launch.cleanup import abandoned, end_survivors, sweep
from orchestrator.launch.hoststate import STATE_VARIABLE
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.processes import SUPERVISOR_VARIABLE, is_running
from orchestrator.launch.sharedmemory import SHARED_MEMORY, remove_shared_memory
from orchestrator.store.owner import this_owner
from tests.launch.conftest import Bench, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def shared() -> Iterator[Callable[[str], Path]]:
    """Makes files in shared memory; they are gone after the test."""
    made: list[Path] = []

    def make(name: str) -> Path:
        path = SHARED_MEMORY / name
        path.write_bytes(bytes(4096))
        made.append(path)
        return path

    yield make
    for path in made:
        path.unlink(missing_ok=True)


@contextmanager
def sleeping(**options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps while the block runs."""
    process = subprocess.Popen(SLEEP, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def dead_pid() -> int:
    """A process that has been."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_shared_memory_of_dead_ranks_goes_and_what_others_hold_stays(shared: Callable[[str], Path]) -> None:
    mine, other, port = dead_pid(), dead_pid(), 1_000_000 + os.getpid()
    gone = [shared(f"torch_{mine}_1_0"), shared(f"deepspeed_allreduce_buffer_0_127.0.0.1_{port}_0")]
    stay = [
        shared(f"torch_{other}_1_0"),
        shared(f"torch_{os.getpid()}_1_0"),
        shared(f"deepspeed_allreduce_buffer_0_127.0.0.1_{port + 1}_0"),
        shared(f"deepspeed_allreduce_buffer_0_127.0.0.1_{port}_1"),
    ]
    with stay[-1].open("r+b") as stream, mmap.mmap(stream.fileno(), 0):
        assert sorted(remove_shared_memory({mine, os.getpid()}, {port})) == sorted(gone)
    assert [path.exists() for path in gone + stay] == [False] * 2 + [True] * 4


@pytest.mark.parametrize("launcher", ["spawn", "fork"])
def test_shared_memory_of_a_stopped_attempt_is_gone_and_a_data_set_stays(bench: Bench, launcher: str) -> None:
    order = bench.order("fills_shared_memory", launcher=launcher)
    bench.client.start(order)
    listing = Path(order.run_dir) / "names.json"
    wait_until(lambda: listing.exists() and "timed_from" in _spool(order.run_dir), "the files")
    *libraries, dataset = (SHARED_MEMORY / name for name in json.loads(listing.read_text()))
    try:
        bench.client.stop(order.attempt_uid, "enough")
        bench.ended(order.attempt_uid)
        assert [path for path in libraries if path.exists()] == []
        assert dataset.exists()
    finally:
        for path in (*libraries, dataset):
            path.unlink(missing_ok=True)


def test_shared_memory_after_supervisor_and_server_are_killed_goes_with_the_sweep(bench: Bench) -> None:
    order = bench.order("fills_shared_memory", launcher="fork")
    bench.client.start(order)
    listing = Path(order.run_dir) / "names.json"
    wait_until(lambda: listing.exists() and "timed_from" in _spool(order.run_dir), "the files")
    files = [SHARED_MEMORY / name for name in json.loads(listing.read_text())]
    torch_rank, torch_child, torch_obedient, deepspeed, _nccl, dataset = files
    try:
        # The server would end what its ranks have forked, were it given the time.
        server = Path(f"/proc/{bench.client.pid}/task/{bench.client.pid}/children").read_text().split()
        os.kill(bench.client.pid, signal.SIGSTOP)
        for pid in (*map(int, server), bench.client.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not bench.client.alive, "the supervisor's death")
        child = int(torch_child.name.split("_")[1])
        rank = int(torch_rank.name.split("_")[1])
        wait_until(lambda: not is_running(rank), "the rank's death")
        assert is_running(child), "nobody ends what a rank has forked but the sweep"
        assert child in sweep(bench.folder / "runs")
        libraries = (torch_rank, torch_child, torch_obedient, deepspeed)
        assert [path for path in libraries if path.exists()] == []
        assert dataset.exists()
    finally:
        for path in files:
            path.unlink(missing_ok=True)


def _spool(run_dir: str) -> str:
    path = Path(run_dir) / "spool" / "rank0.jsonl"
    return path.read_text() if path.exists() else ""


def test_process_of_a_dead_supervisor_is_ended_wherever_it_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    gone, ours = this_owner(dead_pid()), {STATE_VARIABLE: str(tmp_path)}

    def hiding(owner: str, state: dict[str, str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return sleeping(cwd="/", start_new_session=True, env={SUPERVISOR_VARIABLE: owner, **state})

    with (
        hiding(gone, ours) as orphan,
        hiding(this_owner(), ours) as served,
        hiding("another-host:1:1", ours) as foreign,
        hiding(gone, {STATE_VARIABLE: "/another/state"}) as elsewhere,
    ):
        assert end_survivors() == [orphan.pid]
        assert [process.poll() for process in (served, foreign, elsewhere)] == [None] * 3
        assert orphan.wait(10) == -signal.SIGTERM


def test_shell_of_a_person_in_a_run_directory_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "sweep" / "uid"
    folder.mkdir(parents=True)
    AttemptPaths(folder).owner_file.write_text(this_owner(dead_pid()))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(SLEEP[0], SLEEP)
    try:
        wait_until(lambda: os.readlink(f"/proc/{pid}/cwd") == str(folder), "the shell")
        with sleeping(cwd=folder, start_new_session=True) as left:
            assert sweep(tmp_path / "runs") == [left.pid]
        assert is_running(pid)
        assert abandoned(tmp_path / "runs") == []
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_attempt_that_is_being_begun_this_moment_is_not_abandoned(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "sweep" / "uid"
    folder.mkdir(parents=True)
    AttemptPaths(folder).owner_file.touch()
    assert abandoned(tmp_path / "runs") == []
