"""The sampler follows ranks by their spool, from outside."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.worker.ranks import SMALL_BUCKET, job_of
from worker.recorder import Recorder, utc_now
from worker.sampler import FIRST_SAMPLE, follow


def samples(folder: Path) -> list[dict[str, Any]]:
    path = folder / "spool" / "sampler.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_sampler_samples_between_first_and_last_timed_section(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, {"sampler_hz": 500.0}, SMALL_BUCKET)
    spools = [Recorder(tmp_path / "spool" / f"rank{rank}.jsonl") for rank in range(2)]
    follower = threading.Thread(target=follow, args=(job, threading.Event()))
    follower.start()
    for rank, spool in enumerate(spools):
        spool.write("start", rank=rank, pid=os.getpid())
    assert samples(tmp_path) == []
    spools[0].write("timed_from", at=utc_now())
    while len(samples(tmp_path)) < 3:
        follower.join(0.01)
    for spool in spools:
        spool.write("timed_to", at=utc_now(), loop_s=1.0)
    follower.join(10)
    assert not follower.is_alive()
    rows = samples(tmp_path)
    assert [row["sample"] for row in rows] == list(range(FIRST_SAMPLE, FIRST_SAMPLE + len(rows)))
    assert {row["rank"] for row in rows} == {0}
    assert {row["phase"] for row in rows} == {"sampler"}
    assert all(row["rss_bytes"] > 0 and row["at_s"] >= 0 for row in rows)


def test_sampler_off_by_default_writes_nothing(tmp_path: Path) -> None:
    follow(job_of(tmp_path, 1, {}, SMALL_BUCKET), threading.Event())
    assert not (tmp_path / "spool").exists()


def test_sampler_of_another_node_has_a_file_of_its_own(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    follow(replace(job_of(tmp_path, 1, {"sampler_hz": 1.0}, SMALL_BUCKET), node_rank=1), stop)
    assert (tmp_path / "spool" / "sampler-1.jsonl").exists()
