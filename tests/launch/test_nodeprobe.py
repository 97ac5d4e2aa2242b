"""A node of a cluster measures its link before a job: when, under what, and how the rows are kept."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.launch.hoststate import TimedSection
from orchestrator.launch.nodeprobe import probe_before
from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.store import open_store
from tests.store.plans import begin_one

HOLDS = """
import fcntl, json, sys
path, out = sys.argv[1:3]
try:
    fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
    held = False
except OSError:
    held = True
open(out, "a").write(json.dumps([held, sys.argv[3:]]) + "\\n")
row = dict(host="h", device_uuid="GPU-a", device_name=None, pinned=True, direction="down", bytes=8,
           copies=7, seconds=0.5, gbps=1.0, devices_at_once=2, probed_at="2026-01-01T00:00:00+00:00")
print(json.dumps([row, {**row, "direction": "up"}]))
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("ORCH_STATE_DIR", str(folder))
    return folder


def order_of(run_dir: Path, command: tuple[str, ...], every_s: float | None = 300.0) -> LaunchOrder:
    ranks = (RankPlacement(0, 0, 0, "GPU-a"), RankPlacement(1, 1, 1, "GPU-b"))
    return LaunchOrder(
        attempt_uid="u", attempt_id=1, job_id=1, sweep="s", parameters={}, run_dir=str(run_dir),
        ranks=ranks, world_size=2, accelerator="cuda", db_url=None, node_rank=1,
        probe_every_s=every_s, probe_command=command,
    )  # fmt: skip


def script(tmp_path: Path, state: Path) -> tuple[tuple[str, ...], Path]:
    file, calls = tmp_path / "holds.py", tmp_path / "calls"
    file.write_text(HOLDS)
    return (sys.executable, str(file), str(state / "timed-section.lock"), str(calls)), calls


def section_is_free() -> bool:
    section = TimedSection()
    try:
        return section.try_acquire()
    finally:
        section.release()


def calls_in(path: Path) -> list[list[object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_probe_holds_the_timed_section_and_is_not_repeated_before_its_time(
    tmp_path: Path, state: Path
) -> None:
    command, calls = script(tmp_path, state)
    order = order_of(tmp_path / "run", command)
    probe_before(order)
    assert calls_in(calls) == [[True, ["--device", "GPU-a", "--device", "GPU-b"]]]
    assert section_is_free()
    probe_before(order)
    assert len(calls_in(calls)) == 1
    for stamp in (state / "probed").iterdir():
        os.utime(stamp, (0, 0))
    probe_before(order)
    assert len(calls_in(calls)) == 2


def test_probe_of_two_devices_says_nothing_about_one_of_them_alone(tmp_path: Path, state: Path) -> None:
    command, calls = script(tmp_path, state)
    order = order_of(tmp_path / "run", command)
    probe_before(order)
    probe_before(replace(order, ranks=order.ranks[:1]))
    assert [call[1] for call in calls_in(calls)] == [
        ["--device", "GPU-a", "--device", "GPU-b"],
        ["--device", "GPU-a"],
    ]


def test_probe_waits_while_something_is_timed(tmp_path: Path, state: Path) -> None:
    command, calls = script(tmp_path, state)
    section = TimedSection()
    assert section.try_acquire()
    thread = threading.Thread(target=probe_before, args=(order_of(tmp_path / "run", command),))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert calls_in(calls) == []
    section.release()
    thread.join(60)
    assert len(calls_in(calls)) == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("false",), "failed (exit status 1)"),
        (("echo", "no json"), "printed something else"),
        (("echo", '[{"host": "h"}]'), "printed something else"),
        (("no-such-program-of-orch",), "failed (exit status 1)"),
    ],
)
def test_probe_that_fails_is_said_and_keeps_no_job_back(
    tmp_path: Path, state: Path, capfd: pytest.CaptureFixture[str], command: tuple[str, ...], words: str
) -> None:
    probe_before(order_of(tmp_path / "run", command))
    assert words in capfd.readouterr().err
    assert not (tmp_path / "run" / "spool").exists()
    assert section_is_free()


def test_probe_rows_come_into_the_database_once_with_the_attempts_records(
    tmp_path: Path, state: Path
) -> None:
    command, _ = script(tmp_path, state)
    with open_store(f"sqlite:///{tmp_path / 'o.db'}", create=True) as store:
        attempt, spool = begin_one(store, tmp_path)
        probe_before(order_of(spool.parent, command))
        assert (spool / "link.1.jsonl").exists()
        for _ in range(2):
            store.intake(attempt.attempt_id, spool)
        _, rows = store.sql("select sweep_id, host, device_uuid, direction, devices_at_once from link_probe")
        assert sorted(map(tuple, rows)) == [(1, "h", "GPU-a", "down", 2), (1, "h", "GPU-a", "up", 2)]


def test_line_that_is_no_probe_is_noted(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'o.db'}", create=True) as store:
        attempt, spool = begin_one(store, tmp_path)
        (spool / "link.0.jsonl").write_text('{"kind": "link_probe", "host": "h"}\n')
        assert store.intake(attempt.attempt_id, spool).bad_lines == 1
