"""What a store makes of a sweep file that has changed since the sweep was last run."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.cell import make_cell
from orchestrator.spec.load import parse_plan
from orchestrator.store import JobStatus, Store, Verdict
from tests.store.plans import make_plan, new_attempt

CELLS = [make_cell({"hidden_dim": size}) for size in (64, 128, 256)]


def test_c10_changed_spec_adds_new_cells_and_warns_of_vanished_ones(store: Store) -> None:
    first = store.put_sweep(make_plan(cells=CELLS[:2]))
    change = store.put_sweep(make_plan(cells=CELLS[1:]))
    assert (change.sweep_id, change.added, change.kept) == (first.sweep_id, 1, 1)
    assert change.vanished == (CELLS[0].key,)
    assert change.warnings
    assert [job.cell for job in store.runnable(change.sweep_id)] == [CELLS[1].key, CELLS[2].key]
    back = store.put_sweep(make_plan(cells=CELLS))
    assert (back.added, back.kept, back.warnings) == (0, 3, ())
    assert len(store.runnable(change.sweep_id)) == 3


def test_c10_vanished_job_counts_while_it_runs_and_not_by_how_it_ended(store: Store, tmp_path: Path) -> None:
    change = store.put_sweep(make_plan(cells=CELLS[:1]))
    [job] = store.runnable(change.sweep_id)
    attempt = store.begin_attempt(job.job_id, new_attempt(tmp_path))
    assert attempt is not None
    store.put_sweep(make_plan(cells=CELLS[1:]))
    assert store.counts(change.sweep_id)[JobStatus.running] == 1
    store.end_attempt(attempt.attempt_id, Verdict(JobStatus.lost))
    counts = {status: count for status, count in store.counts(change.sweep_id).items() if count}
    assert counts == {JobStatus.pending: 2}


def test_c10_changed_type_is_refused(store: Store) -> None:
    text = "name: t\nds:\n  zero_optimization:\n    sub_group_size: {}\n"
    store.put_sweep(parse_plan(text.format("1000")))
    with pytest.raises(SpecError, match="sub_group_size"):
        store.put_sweep(parse_plan(text.format('"1000"')))
