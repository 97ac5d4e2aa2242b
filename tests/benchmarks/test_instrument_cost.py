"""benchmarks/instrument_cost.py: turns are fair, costs are differences in a block, parts are really off."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.instrument_cost import CALLS, Times, by_turn, costs
from benchmarks.sampler_switch import sampler_of
from benchmarks.turns import RECORDED, SUMMED, WARMUP, Turn, iterations_of, order
from tests.benchmarks.running import TINY, Benchmark

EACH = len(Turn)


def test_every_block_has_each_turn_once_and_each_follows_every_other() -> None:
    turns = order(iterations_of(40))
    assert turns[0] is Turn.ALL and Counter(turns[1:WARMUP]) == Counter(Turn)
    blocks = [turns[at : at + EACH] for at in range(WARMUP, len(turns), EACH)]
    assert len(blocks) == 40 and all(set(block) == set(Turn) for block in blocks)
    # Of 199 steps, a turn after another one of the twenty pairs about ten times.
    after = Counter(pair for pair in pairwise(turns[WARMUP:]) if pair[0] is not pair[1])
    assert len(after) == EACH * (EACH - 1) and min(after.values()) >= 3
    # A shorter run has the same turns: the rank and its reader agree.
    assert order(WARMUP + 7) == turns[: WARMUP + 7]


def test_a_part_costs_what_it_adds_to_the_bare_iteration_of_its_block_whatever_the_machine_does() -> None:
    added = {Turn.BARE: 0.0, Turn.RECORDER: 0.0, Turn.CHECKSUMS: 0.001, Turn.SAMPLER: -0.0005, Turn.ALL: 0.02}
    rows = [
        {
            "hidden_dim": 64, "iterations": iterations_of(9), "iteration": number,
            # The machine becomes a hundredth slower from block to block, and the warm-up is far off.
            "offload_s": (0.1 + (number - WARMUP) // EACH * 0.001 if number >= WARMUP else 9.0) + added[turn],
            "reload_s": 0.2,
        }
        for number, turn in enumerate(order(iterations_of(9)))
    ]  # fmt: skip
    [(size, times)] = by_turn(rows).items()
    found = {(cost.turn, cost.call): cost for cost in costs(size, times)}
    assert len(found) == (EACH - 1) * len(CALLS)
    for turn, expected_s in list(added.items())[1:]:
        cost = found[turn, "offload_s"]
        assert cost.difference_s == pytest.approx(expected_s) and cost.iterations == 9
        assert cost.difference_share == pytest.approx(expected_s / 0.104)
        assert cost.low_share == pytest.approx(cost.high_share)
        assert found[turn, "reload_s"].difference_share == 0


def test_one_disturbed_block_moves_no_figure_and_shows_in_no_interval_of_many() -> None:
    times: Times = {turn: {call: [0.1] * 40 for call in CALLS} for turn in Turn}
    times[Turn.SAMPLER]["offload_s"][7] = 5.0
    assert all(cost.difference_share == cost.low_share == cost.high_share == 0 for cost in costs(64, times))


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_sampler_of_a_job_is_found_by_its_folder_and_stands_still_while_it_is_off(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="sampler_hz"):
        sampler_of(tmp_path, longest_s=0)
    command = [sys.executable, "-c", "import time; time.sleep(600)", "worker.sampler"]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        try:
            switch = sampler_of(tmp_path)
            assert switch.pid == process.pid
            for on in (True, False, False, True):
                switch.turn(on)
                deadline = time.monotonic() + 60
                while (state_of(process.pid) == "T") is on:
                    assert time.monotonic() < deadline
        finally:
            process.kill()


@pytest.mark.deepspeed
def test_a_real_process_takes_turns_and_its_iterations_are_observed_as_their_turn_says(
    tmp_path: Path,
) -> None:
    bench = Benchmark(
        tmp_path, "instrument_cost", "--hidden-dim", "32", "--blocks", "3", "--nlayers", "2", *TINY,
        "--folder", str(tmp_path / "run"), "--save", str(tmp_path / "cost.json"),
    )  # fmt: skip
    try:
        bench.ended()
    finally:
        bench.end()
    found = bench.saved("cost.json")
    # At a tiny size a part may well cost more than a hundredth; nothing else may be wrong.
    assert all("is not within 1% of bare" in line for line in found["problems"]), found["problems"]
    assert [(cost["turn"], cost["iterations"]) for cost in found["costs"]] == [
        (turn, 3) for turn in ("recorder", "checksums", "sampler", "all") for _ in CALLS
    ]
    assert len(found["times"]["32"]["bare"]["reload_s"]) == 3
    with closing(sqlite3.connect(tmp_path / "run" / "instrument_cost.db")) as database:
        rows = database.execute(
            "SELECT iteration, freed_bytes IS NOT NULL, states_intact FROM iteration ORDER BY iteration"
        ).fetchall()
        samples = {
            number
            for (number,) in database.execute("SELECT iteration FROM memory_sample WHERE phase = 'offloaded'")
        }
        outside = database.execute("SELECT COUNT(*) FROM memory_sample WHERE phase = 'sampler'").fetchone()
    turns = order(iterations_of(3))
    recorded = {number for number, turn in enumerate(turns) if turn in RECORDED}
    assert {number for number, is_recorded, _ in rows if is_recorded} == samples == recorded
    assert {number for number, _, intact in rows if intact} == {
        number for number, turn in enumerate(turns) if turn in SUMMED
    }
    assert len(rows) == len(turns) and outside != (0,)
