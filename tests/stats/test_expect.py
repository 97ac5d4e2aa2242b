"""The time that a plan is expected to take, from jobs that ran before."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.analysis.expect import Expectation, expected_seconds
from orchestrator.analysis.sides import read_only
from orchestrator.spec.load import parse_plan
from tests.stats.databases import Database

PIN = {"pin_memory": True, "non_blocking": True}


def expect(path: Path, text: str, host: str = "gpu1") -> Expectation | None:
    plan = parse_plan(f"name: x\ndefaults: {{non_blocking: true}}\n{text}")
    with read_only(str(path)) as store:
        return expected_seconds(store, plan, host=host)


def fill(path: Path, widths: tuple[int, ...] = (2048, 4096, 6144, 8192)) -> None:
    """Jobs of 2 s of start-up and ten iterations of 0.1 s + 30 ns an element of a layer."""
    database = Database(path)
    sweep, environment = database.sweep("old"), database.environment()
    for width in widths:
        loop_s = 10 * (0.1 + 30e-9 * width**2)
        for repeat, factor in enumerate((0.99, 1.0, 1.01), start=1):
            attempt = {"wall_s": 2 + loop_s * factor, "loop_s": loop_s * factor}
            database.job(sweep, environment, {**PIN, "hidden_dim": width}, repeat, {}, attempt=attempt)
    database.close()


def test_cells_that_ran_before_take_their_median(tmp_path: Path) -> None:
    fill(tmp_path / "o.db")
    found = expect(tmp_path / "o.db", "matrix: {hidden_dim: [2048, 8192]}\nrepeats: 3")
    assert found is not None
    each = [2 + 10 * (0.1 + 30e-9 * width**2) for width in (2048, 8192)]
    assert found.seconds == pytest.approx(3 * sum(each))
    assert found.error_share == 0.05
    assert str(found) == "about 82 s (from 4 measured cells, ±5 %)"
    assert sorted(found.job_s.values()) == pytest.approx(each)


def test_new_sizes_and_iterations_follow_a_line(tmp_path: Path) -> None:
    fill(tmp_path / "o.db")
    found = expect(tmp_path / "o.db", "matrix: {hidden_dim: [12288], iteration: [20]}")
    assert found is not None
    assert found.seconds == pytest.approx(2 + 20 * (0.1 + 30e-9 * 12288**2), rel=0.03)
    assert found.error_share <= 0.1


def test_one_measured_size_is_scaled_and_the_error_says_so(tmp_path: Path) -> None:
    fill(tmp_path / "o.db", (4096,))
    found = expect(tmp_path / "o.db", "matrix: {hidden_dim: [8192]}")
    assert found is not None
    assert found.error_share == 0.30
    assert found.seconds > 2 + 10 * (0.1 + 30e-9 * 8192**2)
    assert "1 measured cell," in str(found)


def test_slots_share_what_is_around_the_timed_sections(tmp_path: Path) -> None:
    fill(tmp_path / "o.db")
    text = "matrix: {hidden_dim: [2048]}\nrepeats: 4\nengine: {name: local, slots: 2}"
    one, two = expect(tmp_path / "o.db", text.replace("2}", "1}")), expect(tmp_path / "o.db", text)
    assert one is not None
    assert two is not None
    assert one.seconds - two.seconds == pytest.approx(4.0)


def test_another_host_says_nothing_of_this_one(tmp_path: Path) -> None:
    fill(tmp_path / "o.db")
    assert expect(tmp_path / "o.db", "matrix: {hidden_dim: [2048]}", host="gpu2") is None


def test_an_empty_database_says_nothing(tmp_path: Path) -> None:
    Database(tmp_path / "o.db").close()
    assert expect(tmp_path / "o.db", "matrix: {hidden_dim: [2048]}") is None


def test_a_size_far_beyond_the_measured_ones_is_called_a_guess(tmp_path: Path) -> None:
    fill(tmp_path / "o.db", (1024, 2048))
    found = expect(tmp_path / "o.db", "matrix: {hidden_dim: [2048, 16384]}")
    assert found is not None
    assert found.beyond == 1
    assert str(found).endswith("(a guess: 1 cell is far larger than any measured)")
