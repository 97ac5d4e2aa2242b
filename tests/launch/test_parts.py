"""The small parts: orders, job files, logs, spools, paths, environments."""

from __future__ import annotations

import errno
import io
import json
import sys
import threading
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.launch import commands
from orchestrator.launch.environment import (
    PinBackendUnsupported,
    allocator_settings,
    is_applied_after_fork,
    server_environment,
)
from orchestrator.launch.finisher import Finish, Finisher
from orchestrator.launch.logs import CappedLog
from orchestrator.launch.loop import Loop, Timer
from orchestrator.launch.order import LaunchOrder, RankPlacement, order_from_json
from orchestrator.launch.output import Output
from orchestrator.launch.paths import runs_root
from orchestrator.launch.spool import SpoolTail
from orchestrator.launch.verdict import is_disk_full
from orchestrator.spec.jobfile import JobFile, load_job
from orchestrator.store import JobStatus, open_store
from orchestrator.store.rows import AttemptEnd

placements = st.lists(
    st.builds(RankPlacement, st.integers(0, 99), st.integers(0, 7), st.none() | st.integers(0, 7)), max_size=4
).map(tuple)


@given(placements, placements, st.none() | st.integers(1, 65535), st.booleans())
def test_order_survives_json(
    ranks: tuple[RankPlacement, ...], beside: tuple[RankPlacement, ...], port: int | None, finish: bool
) -> None:
    order = LaunchOrder(
        "uid", 1, 2, "s", {"a": None, "b": 1.5}, "/run", ranks, 4, "cpu", None, port=port, finish=finish,
        neighbours=(beside,),
    )  # fmt: skip
    assert order_from_json(json.loads(json.dumps(order.to_json()))) == order


def test_output_of_a_launcher_tells_of_a_full_disk_before_its_own_last_words(tmp_path: Path) -> None:
    output = Output(Loop(), tmp_path / "log")
    assert output.last_line(preferred=is_disk_full) == ""
    output.log.write(b"OSError: [Errno 28] No space left on device\n\nlaunch: exits with 1\n")
    assert output.last_line(preferred=is_disk_full) == "OSError: [Errno 28] No space left on device"
    assert output.last_line() == "launch: exits with 1"
    output.close()


def test_job_file_survives_the_disk(tmp_path: Path) -> None:
    job = JobFile(
        "uid", 1, 2, "s", {"pin_memory": True, "seq_len": None}, {"a": {"b": 1}}, {"X": "y"}, 2, 1, 0, 2,
        "127.0.0.1", 20001, "cpu", "fork", False, None, "/run", "/run/spool", 600.0,
        (RankPlacement(0, 0), RankPlacement(1, 1)),
    )  # fmt: skip
    job.write(tmp_path / "job.json")
    assert load_job(tmp_path / "job.json") == job
    assert (tmp_path / "job.json").stat().st_mode & 0o777 == 0o600


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_capped_log_keeps_head_and_tail(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log = CappedLog(path, head_bytes=30, tail_bytes=20)
    for part in parts:
        log.write(part)
    log.close()
    written, whole = path.read_bytes(), b"".join(parts)
    assert written.startswith(whole[:30])
    if written != whole:
        assert b"the log was capped" in written
        assert written.endswith(whole[-20:])


@given(st.integers(0, 400))
def test_spool_tail_takes_complete_lines_only(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    lines = [
        {"kind": "start", "rank": 0}, {"kind": "timed_from", "at": "a"}, {"kind": "iteration"},
        {"kind": "sample"}, {"kind": "timed_to", "at": "b", "loop_s": 1.0}, {"kind": "final", "rank": 0},
    ]  # fmt: skip
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path = tmp_path_factory.mktemp("spool") / "rank0.jsonl"
    path.write_bytes(data[:cut])
    tail = SpoolTail(path, 0)
    tail.read()
    assert tail.final == (cut >= len(data))
    with path.open("ab") as stream:
        stream.write(data[cut:])
    tail.read()
    assert (tail.final, tail.iterations, tail.loop_s) == (True, 1, 1.0)


@pytest.mark.parametrize("loss", ["removed", "emptied", "cut"])
def test_spool_tail_whose_file_goes_takes_its_final_record_back(tmp_path: Path, loss: str) -> None:
    path = tmp_path / "rank0.jsonl"
    data = b'{"kind": "start"}\n{"kind": "iteration"}\n{"kind": "final"}\n'
    path.write_bytes(data)
    tail = SpoolTail(path, 0)
    assert tail.read()
    assert tail.final
    match loss:
        case "removed":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case _:
            path.write_bytes(data[:-5])
    assert tail.read(), "that is news"
    tail.read()
    assert not tail.final


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b"1", b"null", b'"a"']), max_size=6)
)
def test_no_garbage_in_a_spool_stops_its_follower(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("spool") / "rank0.jsonl"
    odd = b'{"kind": "timed_from", "at": 5}\n{"kind": "timed_to", "at": [], "loop_s": {}}\n{"kind": []}\n'
    path.write_bytes(b"\n".join([*lines, odd, b'{"kind": "final"}\n']))
    tail = SpoolTail(path, 0)
    assert tail.read()
    assert (tail.final, tail.timed_from_at, tail.timed_to_at, tail.loop_s) == (True, None, None, None)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("sqlite:///orch.db", "/here/orch.db.runs"),
        ("sqlite:////data/x.db", "/data/x.db.runs"),
        ("x.db", "/here/x.db.runs"),
        ("postgresql://u@h/d", "/here/orch-runs"),
    ],
)
def test_runs_root(url: str, where: str) -> None:
    assert runs_root(url, Path("/here")) == Path(where)


def test_allocator_settings_of_every_pin_backend() -> None:
    assert allocator_settings("default") is None
    assert allocator_settings(None) is None
    assert allocator_settings("host_register") == (
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:16"
    )
    assert "pinned_max_round_threshold_mb" in (allocator_settings("exact") or "")
    with pytest.raises(PinBackendUnsupported):
        allocator_settings("host_register:many")


def test_only_what_nothing_reads_early_shares_a_server() -> None:
    assert is_applied_after_fork("NCCL_DEBUG")
    assert not is_applied_after_fork("TORCH_EXTENSIONS_DIR")
    plain = server_environment("cpu", {})
    assert server_environment("cpu", {"NCCL_DEBUG": "INFO"}) == plain
    assert server_environment("cpu", {"OMP_WAIT_POLICY": "PASSIVE"}) != plain


def test_deepspeed_command_names_devices_by_index_and_ranks_follow_its_sorting() -> None:
    ranks = (RankPlacement(0, 0, 3, "GPU-d"), RankPlacement(1, 1, 1, "GPU-b"))
    order = LaunchOrder("u", 1, 1, "s", {}, "/run", ranks, 2, "cuda", None, launcher="deepspeed")
    command = commands.deepspeed_command(order, ranks, 20001, Path("/run/job.json"))
    assert "--include=localhost:1,3" in command
    assert not any(part.startswith("--num_gpus") for part in command)
    assert [place.device_uuid for place in commands.deepspeed_order(ranks)] == ["GPU-b", "GPU-d"]


def test_loop_lets_go_of_cancelled_timers() -> None:
    loop = Loop()
    held = [object() for _ in range(2000)]
    gone = [weakref.ref(timer) for timer in (_cancelled(loop) for _ in held)]
    assert sum(ref() is not None for ref in gone) < 600
    happened: list[str] = []
    loop.call_later(0.0, lambda: happened.append("late"))
    loop.call_soon(lambda: happened.append("soon"))
    loop.call_later(0.01, loop.stop)
    loop.run()
    loop.close()
    assert sorted(happened) == ["late", "soon"]


def test_loop_goes_on_after_a_callback_that_raises(capfd: pytest.CaptureFixture[str]) -> None:
    loop = Loop()
    loop.call_soon(lambda: 1 // 0)  # type: ignore[arg-type]
    loop.call_later(0.0, loop.stop)
    loop.run()
    loop.close()
    assert "ZeroDivisionError" in capfd.readouterr().err


def _cancelled(loop: Loop) -> Timer:
    timer = loop.call_later(1800.0, lambda: None)
    timer.cancel()
    return timer


def test_log_on_a_full_disk_does_not_end_the_finisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, done = threading.Event(), threading.Event()

    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            said.set()
            raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    notices: list[str] = []
    finisher = Finisher(str(tmp_path / "orch.db"), lambda run: run(), notices.append)
    finisher.finish(Finish(AttemptEnd(1, JobStatus.ok), None, done.set))
    assert said.wait(60), "it says that there is no database"
    open_store(str(tmp_path / "orch.db"), create=True).close()
    assert done.wait(60)
    assert finisher.close(60)
    assert [("back" in text, "orch.db" in text) for text in notices] == [(True, True), (True, False)]
