"""benchmarks/example_loop.py: what it compares, and what is left of it when a limit stops it."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.example_figures import Example, document, figures
from tests.benchmarks.running import TINY, Benchmark

SCRIPT = """
import argparse, pathlib, subprocess, sys
parser = argparse.ArgumentParser()
for name in ("--hidden_dim", "--nlayers", "--local_rank"):
    parser.add_argument(name)
for name in ("--pin_memory", "--non_blocking"):
    parser.add_argument(name, action="store_true")
options = parser.parse_args()
if pathlib.Path("hang").exists() and options.non_blocking:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    pathlib.Path("hung").touch()
    child.wait()
with open("offload_states.log", "a") as rows:
    rows.write(f"{int(options.pin_memory)},{int(options.non_blocking)},0.5,0.25\\n")
"""
"""The example's interface: its options, and the row that it appends. The original asks for a GPU's memory."""


def job(begun: int, done: int, loop_s: float, setting: tuple[bool, bool]) -> dict[str, Any]:
    return {
        "timed_from_at": f"2026-01-01T00:00:{begun}Z", "timed_to_at": f"2026-01-01T00:00:{done}Z",
        "loop_s": loop_s, "calls_s": loop_s - 1, "pin_memory": setting[0], "non_blocking": setting[1],
    }  # fmt: skip


EXAMPLE = [Example((False, False), 33.0, 13.0), Example((True, True), 27.0, 3.0)]
JOBS = [job(20, 34, 14.0, (False, False)), job(36, 40, 4.0, (True, True))]
BEGAN_AT = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_the_comparison_with_the_example_tells_loops_and_the_rest_apart() -> None:
    found = figures(EXAMPLE, JOBS, BEGAN_AT, 42.0)
    assert (found.example_s_per_job, found.orch_s_per_job, found.orch_loop_s_per_job) == (30.0, 21.0, 9.0)
    assert (found.orch_overhead_s_per_job, found.orch_checks_s_per_job) == (12.0, 1.0)
    assert (found.orch_before_first_loop_s, found.orch_between_loops_s) == (20.0, 2.0)
    assert found.times_faster == pytest.approx(30 / 21)
    assert found.times_faster_at_most == pytest.approx(30 / 9)
    assert found.times_less_overhead == pytest.approx((30 - 8) / 12)


def test_settings_that_ran_more_often_than_others_weigh_no_more() -> None:
    whole = figures(EXAMPLE, JOBS, BEGAN_AT, 42.0)
    # A third job of the short setting; the command of a setting that orch has not come to.
    more = [*JOBS, job(42, 46, 4.0, (True, True))]
    found = figures([*EXAMPLE, Example((True, False), 99.0, 9.0)], more, BEGAN_AT, 42.0 + 4 + 12)
    assert (found.orch_s_per_job, found.orch_loop_s_per_job) == (21.0, 9.0)
    assert found.times_faster == whole.times_faster
    assert (found.example_jobs, found.orch_jobs) == (3, 3)


def test_a_side_that_has_not_run_has_no_figures_and_no_ratio() -> None:
    found = figures(EXAMPLE, [], BEGAN_AT, 0.0)
    assert (found.example_s_per_job, found.orch_s_per_job, found.times_faster) == (30.0, None, None)
    apart = figures(EXAMPLE[:1], JOBS[1:], BEGAN_AT, 42.0)
    assert (apart.example_s_per_job, apart.orch_loop_s_per_job, apart.times_faster) == (33.0, 4.0, None)
    assert document(EXAMPLE, JOBS, found, (2, 2))["cut_short"] is False
    assert document(EXAMPLE, JOBS, found, (2, 4))["cut_short"] is True


@pytest.fixture
def benchmark_of(tmp_path: Path) -> Iterator[Any]:
    """Starts the benchmark with the script above at a tiny size."""
    (tmp_path / "offload_states.py").write_text(SCRIPT)
    started = []

    def start(*words: str) -> Benchmark:
        bench = Benchmark(
            tmp_path, "example_loop", "--script", str(tmp_path / "offload_states.py"), "--trials", "1",
            "--hidden-dim", "32", "--nlayers", "2", "--folder", str(tmp_path / "run"), "--name", "tiny",
            "--save", str(tmp_path / "found.json"), *TINY, *words,
        )  # fmt: skip
        started.append(bench)
        return bench

    yield start
    for bench in started:
        bench.end()


@pytest.mark.deepspeed
def test_stopped_in_the_middle_of_a_command_of_the_example_keeps_those_before_it(
    benchmark_of: Any, tmp_path: Path
) -> None:
    tmp_path.joinpath("run").mkdir()
    tmp_path.joinpath("run", "hang").touch()
    bench = benchmark_of()
    bench.until(lambda: tmp_path.joinpath("run", "hung").exists())
    # Saved before anybody asked for an end.
    assert [row["setting"] for row in bench.saved("found.json")["example"]] == [[False, False]]
    # The whole group, as the campaign does it.
    os.killpg(bench.process.pid, signal.SIGTERM)
    assert bench.ended() == 1
    found = bench.saved("found.json")
    assert (found["example_jobs"], found["orch_jobs"], found["cut_short"]) == (1, 0, True)
    assert found["example_calls_s_per_job"] == pytest.approx(10 * 0.75)
    assert "cut short: 1 of 4 commands of the example, 0 of 4 jobs of orch" in bench.printed


@pytest.mark.deepspeed
def test_stopped_while_orch_runs_compares_the_jobs_that_are_ok(benchmark_of: Any, tmp_path: Path) -> None:
    bench = benchmark_of("--orch-trials", "100")
    database = tmp_path / "run" / "orch.db"

    def ok_jobs() -> int:
        if not database.exists():
            return 0
        try:
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                [(count,)] = connection.execute("SELECT COUNT(*) FROM job WHERE status = 'ok'").fetchall()
                return int(count)
        except sqlite3.OperationalError:  # Orch is making it.
            return 0

    bench.until(lambda: ok_jobs() >= 2)
    os.killpg(bench.process.pid, signal.SIGTERM)
    assert bench.ended() == 1
    found = bench.saved("found.json")
    assert found["cut_short"] and found["example_jobs"] == 4
    assert 2 <= found["orch_jobs"] == ok_jobs() < found["orch_jobs_asked"] == 400
    assert found["times_faster"] == pytest.approx(found["example_s_per_job"] / found["orch_s_per_job"])
    assert found["orch_overhead_s_per_job"] > 0 and found["orch_before_first_loop_s"] > 0
    assert f"cut short: 4 of 4 commands of the example, {ok_jobs()} of 400 jobs of orch" in bench.printed
    # One signal reached orch, which ended its job in order.
    log = (tmp_path / "run" / "orch.txt").read_text()
    assert "again to kill them at once" in log and "killing" not in log
