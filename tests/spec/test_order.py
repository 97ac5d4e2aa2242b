"""The order of jobs."""

from __future__ import annotations

import pytest

from tests.spec.reading import plan


def order_of(text: str) -> list[tuple[int, int]]:
    made = plan(f"defaults: {{seq_len: 9}}\n{text}")
    return [(int(str(job.cell.values["nlayers"])), job.repeat) for job in made.jobs]


def test_interleave_is_the_default_a_round_for_each_repeat() -> None:
    text = "matrix: {nlayers: [1, 2]}\nrepeats: 2"
    assert order_of(text) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert order_of(text) == order_of(f"{text}\norder: interleave")


def test_sequential_runs_a_cell_s_repeats_in_a_row() -> None:
    text = "matrix: {nlayers: [1, 2]}\nrepeats: 2\norder: sequential"
    assert order_of(text) == [(1, 1), (1, 2), (2, 1), (2, 2)]


RANDOM = "matrix: {nlayers: [%s]}\nrepeats: 3\norder: random\nseed: %d"


def test_random_depends_on_the_seed_alone() -> None:
    some = RANDOM % (", ".join(map(str, range(1, 9))), 1)
    other = RANDOM % (", ".join(map(str, range(1, 9))), 2)
    assert order_of(some) == order_of(some)
    assert order_of(some) != order_of(other)
    assert sorted(order_of(some)) == sorted(order_of(other))


@pytest.mark.parametrize("seed", range(5))
def test_random_keeps_the_others_in_place_when_a_cell_is_added(seed: int) -> None:
    before = order_of(RANDOM % ("1, 2, 3, 4", seed))
    after = order_of(RANDOM % ("1, 2, 3, 4, 5", seed))
    assert [job for job in after if job[0] != 5] == before


def test_label_is_cell_and_repeat() -> None:
    job = plan("repeats: 2").jobs[1]
    assert job.label == f"{job.cell.short}/2"
