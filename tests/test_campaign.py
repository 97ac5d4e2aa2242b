"""benchmarks/campaign.py: its commands are ones that orch takes, and what it keeps can be shipped."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.campaign import COPY_S, PARITY, RESERVE_S, STOP_S, Campaign, run_within, smaller
from benchmarks.memory import touch_memory
from benchmarks.shipping import counts, without_folders
from benchmarks.stages import STAGES, Stage
from orchestrator.cli.main import main
from orchestrator.spec.bytes import predict
from orchestrator.spec.load import load_plan
from tests.fixtures.make_results import make_small

SWEEPS = [stage for stage in STAGES if stage.command[0] == "orchestrator"]


def campaign(folder: Path, divisor: int = 1) -> Campaign:
    folder.joinpath("keep").mkdir()
    until = time.monotonic() + 600
    return Campaign(folder, folder / "keep", until, divisor, None, "0", "kept.db")


def settings(command: list[str]) -> list[str]:
    return [word for flag, word in pairwise(command) if flag == "--set"]


@pytest.mark.parametrize("stage", SWEEPS, ids=lambda stage: stage.name)
def test_each_sweep_of_the_campaign_is_a_plan_that_fits_an_h200_host(stage: Stage, tmp_path: Path) -> None:
    command = campaign(tmp_path).command(stage)
    plan = load_plan(Path(command[4]), overrides=settings(command))
    assert plan.jobs
    done = CliRunner().invoke(main, ["plan", command[4], "--json", *_set(settings(command))])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["count"] == len(plan.jobs)


def _set(words: list[str]) -> list[str]:
    return [part for word in words for part in ("--set", word)]


def test_the_findings_sweep_has_four_sizes_of_each_curve_and_one_copy_of_thirty_gigabytes() -> None:
    cells = load_plan(Path(campaign_spec("findings"))).cells
    curves: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for cell in cells:
        value = cell.effective
        if value("zero_stage") == 3 and value("dtype") == "bfloat16" and value("included_state") == "all":
            names = ("pin_memory", "non_blocking", "reload_non_blocking", "gc_freeze", "pin_backend")
            curves[tuple(value(name) for name in names)].add(int(value("hidden_dim") or 0))
    assert sum(len(sizes) >= 4 for sizes in curves.values()) == 4
    expected = [predict(cell) for cell in cells]
    assert max(one.copied_bytes or 0 for one in expected) > 30e9
    # A host of 128 GiB has room for the pinned buffers of each.
    assert max(one.pinned_bytes or 0 for one in expected) < 0.9 * 128 * 2**30


def campaign_spec(name: str) -> Path:
    return Path(__file__).parents[1] / "sweeps" / f"{name}.yaml"


@pytest.mark.parametrize("stage", SWEEPS, ids=lambda stage: stage.name)
def test_a_divided_campaign_has_the_same_jobs_at_small_sizes(stage: Stage, tmp_path: Path) -> None:
    command = campaign(tmp_path, 64).command(stage)
    plan = load_plan(Path(command[4]), overrides=settings(command))
    assert max(int(cell.effective("hidden_dim") or 0) for cell in plan.cells) <= 512
    assert "ds.zero_optimization.reduce_bucket_size=5e6" in settings(command)


def test_sizes_are_divided_wherever_they_stand() -> None:
    text = "hidden_dim: [4096, 8192]\n- {<<: *fast, hidden_dim: 16384, nlayers: 8}\n"
    assert smaller(text, 64) == "hidden_dim: [64, 128]\n- {<<: *fast, hidden_dim: 256, nlayers: 8}\n"


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def test_a_stage_is_stopped_at_its_limit_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "child"
    program = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(marker)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with (tmp_path / "log").open("wb") as log:
        assert run_within([sys.executable, "-c", program], tmp_path, 5, log) is None
    # The signal is sent when the call returns; a loaded host takes its time over the rest.
    deadline = time.monotonic() + 60
    while state_of(int(marker.read_text())) not in ("", "Z"):
        assert time.monotonic() < deadline


def test_a_stage_that_does_not_fit_into_what_is_left_is_left_out(tmp_path: Path) -> None:
    late = campaign(tmp_path)
    late.until = time.monotonic() + 20
    assert late.run(SWEEPS[0]).startswith("left out")
    assert not (tmp_path / "keep" / "kept.db").exists()


def test_the_comparison_with_the_example_writes_into_the_kept_folder_and_begins_with_half_of_it(
    tmp_path: Path,
) -> None:
    [stage] = [stage for stage in STAGES if stage.part == "example"]
    command = campaign(tmp_path).command(stage)
    assert dict(pairwise(command))["--save"] == str(tmp_path / "keep" / "example_loop.json")
    assert 0.5 * stage.expected_s <= stage.least_s < stage.expected_s


@pytest.mark.parametrize(
    ("divisor", "wanted"), [(1, "4096 8192 --blocks 60 40"), (64, "64 128 --blocks 4 4")]
)
def test_the_instrument_stage_has_forty_iterations_of_each_part_or_a_few_small_ones(
    divisor: int, wanted: str, tmp_path: Path
) -> None:
    [stage] = [stage for stage in STAGES if stage.name == "instrument"]
    command = campaign(tmp_path, divisor).command(stage)
    assert " ".join(command).endswith(f"--hidden-dim {wanted}")
    assert dict(pairwise(command))["--save"] == str(tmp_path / "keep" / "instrument_cost.json")


def test_a_campaign_has_the_time_to_stop_a_stage_and_to_copy_before_its_limit() -> None:
    assert RESERVE_S >= STOP_S + COPY_S
    assert all(stage.least_s < 1.5 * stage.expected_s for stage in STAGES)


def test_what_is_kept_is_sound_whole_and_names_no_folder(tmp_path: Path) -> None:
    kept = campaign(tmp_path)
    make_small(kept.database)
    with closing(sqlite3.connect(kept.database)) as database:
        jobs = database.execute("SELECT COUNT(*) FROM job").fetchone()
        lines = 'File "/home/me/env/lib/python3.12/site-packages/deepspeed/engine.py", line 1\nRuntimeError'
        database.execute("UPDATE attempt_rank SET traceback = ?", (lines,))
        database.execute("UPDATE attempt SET run_dir = '/home/me/work.db.runs/5e/' || uid")
        database.execute("UPDATE sweep SET spec_path = '/home/me/orch/sweeps/full.yaml'")
        database.commit()
    kept.save()
    target = tmp_path / "keep" / "kept.db"
    with closing(sqlite3.connect(target)) as database:
        assert database.execute("SELECT COUNT(*) FROM job").fetchone() == jobs
        assert database.execute("SELECT COUNT(*) FROM memory_sample").fetchone() == (0,)
        assert database.execute("SELECT DISTINCT spec_path FROM sweep").fetchall() == [("sweeps/full.yaml",)]
        assert database.execute("SELECT run_dir FROM attempt LIMIT 1").fetchone()[0].startswith("runs/5e/a-")
        [(text,)] = database.execute(
            "SELECT traceback FROM attempt_rank WHERE traceback IS NOT NULL"
        ).fetchall()
        assert text.startswith('File "deepspeed/engine.py", line 1')
    done = CliRunner().invoke(main, ["db", "check", "--db", str(target)])
    assert (done.exit_code, done.stdout) == (0, "ok\n")
    assert [path.name for path in target.parent.iterdir()] == ["kept.db"]


def test_the_rounds_of_parity_are_kept_apart_and_the_next_campaign_continues_them(tmp_path: Path) -> None:
    first = campaign(tmp_path)
    (tmp_path / PARITY).parent.mkdir()
    make_small(tmp_path / PARITY)
    first.save()
    assert [str(path.relative_to(first.keep)) for path in first.keep.rglob("*.db")] == [str(PARITY)]
    second = Campaign(tmp_path / "next", tmp_path / "kept", first.until, 1, None, "0", "kept.db")
    second.begin(first.keep / "kept.db")
    assert counts(tmp_path / "next" / PARITY) == counts(tmp_path / PARITY)
    [stage] = [stage for stage in STAGES if stage.part == "parity"]
    command = dict(pairwise(second.command(stage)))
    assert (tmp_path / "next" / command["--folder"] / "parity.db") == tmp_path / "next" / PARITY
    # Its own limit comes before the one that would cut a round.
    assert float(command["--limit-s"]) <= second.until - time.monotonic() - RESERVE_S + 1


def test_cutting_folders_out_twice_changes_nothing_more(tmp_path: Path) -> None:
    database = make_small(tmp_path / "o.db")

    def rows() -> list[str]:
        without_folders(database)
        with closing(sqlite3.connect(database)) as connection:
            return list(connection.iterdump())

    assert rows() == rows()
    assert counts(database)["cpu-quick"] == "8 ok"


def test_memory_is_used_once_as_much_as_asked_or_as_the_time_allows() -> None:
    touched = touch_memory(64 << 20, processes=2)
    assert touched.gigabytes == pytest.approx((64 << 20) / 1e9)
    assert touched.ram_after_bytes > 64 << 20
    assert touch_memory(64 << 20, processes=2, longest_s=0).gigabytes == 0
