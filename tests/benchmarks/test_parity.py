"""benchmarks/parity.py: which rounds count, what is judged, and that a later call adds rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parity import tell
from benchmarks.parity_figures import Found, differences, judged, whole_rounds
from tests.benchmarks.running import TINY, Benchmark

PLAIN, FROZEN = "v1:aaaaaa", "v1:bbbbbb"


def invented(rounds: int, *launchers: str, slower: float = 1.0) -> Found:
    """Equal figures of ``deepspeed`` and the others, whose offload takes ``slower`` times as long."""
    return {
        launcher: {
            (cell, number): {
                "status": "ok", "launch_mode": launcher, "host": "a", "device_uuids": "GPU-1", "loss": 1.5,
                "copied_bytes": 80, "freed_bytes": 90, "tracked_objects": 1000, "pin_memory": 1,
                "gc_freeze": cell == FROZEN, "reload_s_median": 0.5, "offload_gc_s": None,
                # A round is slower than the one before it, for everybody.
                "offload_s_median": (1 + number) * (1 if launcher == "deepspeed" else slower),
            }
            for cell in (PLAIN, FROZEN) for number in range(1, rounds + 1)
        }
        for launcher in ("deepspeed", *launchers)
    }  # fmt: skip


def test_a_round_counts_when_every_launcher_has_all_of_it_on_one_device() -> None:
    found = invented(5, "fork", "spawn")
    assert whole_rounds(found) == [1, 2, 3, 4, 5]
    found["fork"][PLAIN, 2]["status"] = "cancelled"
    found["spawn"][FROZEN, 3]["device_uuids"] = "GPU-2"
    del found["deepspeed"][PLAIN, 5]
    assert whole_rounds(found) == [1, 4]


def test_what_differs_is_told_and_so_is_a_job_that_failed_but_not_one_that_did_not_run() -> None:
    found = invented(4, "fork")
    found["fork"][PLAIN, 1]["loss"] = 2.5
    found["fork"][PLAIN, 2]["tracked_objects"] = 1006
    found["fork"][FROZEN, 2]["tracked_objects"] = 1005
    found["fork"][FROZEN, 3]["status"] = "failed"
    found["fork"][FROZEN, 4]["status"] = "pending"
    assert differences(found, whole_rounds(found)) == [
        "fork, cell aaaaaa, round 1: loss 2.5 instead of 1.5",
        "fork, cell aaaaaa, round 2: 1006 tracked objects instead of 1000",
        "fork, cell bbbbbb, round 3: failed",
    ]


@pytest.mark.parametrize(("slower", "inside"), [(1.02, True), (1.04, False)])
def test_times_are_compared_within_rounds_over_all_cells_and_in_each(slower: float, inside: bool) -> None:
    rows = judged(invented(4, "fork", slower=slower), [1, 2, 3, 4])
    assert [(row["metric"], row["cell"], row["pairs"]) for row in rows] == [
        ("offload_s_median", "all", 8),
        ("offload_s_median", "pinned, heap frozen", 4),
        ("offload_s_median", "pinned, plain", 4),
        ("reload_s_median", "all", 8),
        ("reload_s_median", "pinned, heap frozen", 4),
        ("reload_s_median", "pinned, plain", 4),
    ]
    assert [row["inside"] for row in rows] == [inside] * 3 + [True] * 3
    assert rows[0]["ratio"] == pytest.approx(slower) and rows[3]["low"] == rows[3]["high"] == 1


def test_the_collection_is_told_where_it_was_timed_and_is_not_judged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = invented(4, "fork")
    for key, row in found["fork"].items():
        row["offload_gc_s"] = 0.4 if key[0] == PLAIN else None
        found["deepspeed"][key]["offload_gc_s"] = 0.2
    assert tell({}, found, tmp_path / "parity.json") == 0
    assert "fork   offload_gc_s      all                          ratio 2.0000" in capsys.readouterr().out
    saved = json.loads((tmp_path / "parity.json").read_text())
    assert [row["metric"] for row in saved["ratios"]] == ["offload_s_median", "reload_s_median"]
    assert [row["pairs"] for row in saved["cells"] if row["metric"] == "offload_gc_s"] == [4]


@pytest.fixture
def benchmark_of(tmp_path: Path) -> Iterator[Any]:
    """Starts the benchmark with one tiny cell through ``fork``; its database stays in a folder."""
    started = []

    def start(*words: str) -> Benchmark:
        bench = Benchmark(
            tmp_path, "parity", "--hidden-dim", "32", "--nlayers", "2", "--iteration", "4", *TINY,
            "--set", "pin_memory=true", "--set", "gc_freeze=true", "--set", "instrumented=1",
            "--launchers", "fork",
            "--folder", str(tmp_path / "run"), "--save", str(tmp_path / "parity.json"), *words,
        )  # fmt: skip
        started.append(bench)
        return bench

    yield start
    for bench in started:
        bench.end()


@pytest.mark.deepspeed
def test_rounds_stop_at_the_limit_without_a_verdict_and_a_later_call_adds_the_rest(
    benchmark_of: Any, tmp_path: Path
) -> None:
    # No second round fits into a second, and none is begun.
    first = benchmark_of("--limit-s", "1")
    assert first.ended() == 1
    assert "no verdict: 3 of 4 rounds are missing" in first.printed
    found = first.saved("parity.json")
    assert (found["rounds"], found["missing_rounds"], found["ratios"]) == (1, 3, [])
    assert found["problems"] == []
    second = benchmark_of("--rounds", "4")
    second.ended()
    found = second.saved("parity.json")
    assert (found["rounds"], found["missing_rounds"]) == (4, 0)
    assert [(row["metric"], row["pairs"]) for row in found["ratios"]] == [
        ("offload_s_median", 4), ("reload_s_median", 4)
    ]  # fmt: skip
    assert [row["pairs"] for row in found["cells"] if row["metric"] == "offload_gc_s"] == [4]
    # Times of a loaded host may differ; nothing else may.
    assert [line for line in found["problems"] if "is not within 3%" not in line] == []
    # Each launcher was first in turn, and the first round was not run again.
    turns = [line.split(": ")[1] for line in second.printed.splitlines() if line.startswith("round ")]
    assert turns == ["deepspeed", "fork", "fork", "deepspeed", "deepspeed", "fork"]
