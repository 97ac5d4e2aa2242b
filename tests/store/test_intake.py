"""The spool: every complete line once, whatever else lies in the file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.store import AttemptRow, JobStatus, Store
from orchestrator.store.rows import AttemptEnd
from orchestrator.store.spoolfile import read_lines
from orchestrator.store.status import FailureKind
from tests.store.plans import begin_one, iteration_record, rank_records, write_spool


@pytest.fixture
def begun(store: Store, tmp_path: Path) -> Iterator[tuple[AttemptRow, Path]]:
    """An attempt and its spool."""
    return begin_one(store, tmp_path)  # type: ignore[return-value]


def test_c6_nan_and_infinity_are_kept_apart_from_missing(
    store: Store, begun: tuple[AttemptRow, Path]
) -> None:
    attempt, spool = begun
    values = {"loss": "nan", "step_s": "inf", "reload_s": None, "offload_s": -0.0, "freed_bytes": "nan"}
    write_spool(spool / "rank0.jsonl", [iteration_record(0, 0, **values)])
    assert store.intake(attempt.attempt_id, spool).bad_lines == 0
    query = "SELECT loss, step_s, reload_s, offload_s, freed_bytes, nonfinite FROM iteration"
    [row] = store.sql(query)[1]
    assert row == (None, math.inf, None, 0.0, None, "freed_bytes=nan,loss=nan")
    assert math.copysign(1, row[3]) == 1


def test_c7_times_are_stored_in_utc_whatever_their_zone(store: Store, begun: tuple[AttemptRow, Path]) -> None:
    attempt, spool = begun
    # New York puts its clocks back on 2026-11-01: 01:30 happens twice.
    records: list[dict[str, Any]] = [
        {"kind": "start", "attempt_uid": attempt.uid, "rank": 0},
        {"kind": "timed_from", "at": "2026-11-01T01:30:00-04:00"},
        {"kind": "timed_to", "at": "2026-11-01T01:10:00-05:00", "loop_s": 2400.0},
        {"kind": "final", "rank": 0, "iterations": 0, "at": "2026-11-01T01:10:01-05:00"},
    ]
    write_spool(spool / "rank0.jsonl", records)
    store.intake(attempt.attempt_id, spool)
    after = store.attempt(attempt.attempt_id)
    assert after is not None
    assert after.timed_from_at == "2026-11-01T05:30:00.000000Z"
    assert after.timed_to_at == "2026-11-01T06:10:00.000000Z"
    assert after.loop_s == 2400.0


def test_line_without_newline_is_not_acknowledged(store: Store, begun: tuple[AttemptRow, Path]) -> None:
    attempt, spool = begun
    path = write_spool(spool / "rank0.jsonl", rank_records(attempt.uid, 0, 3))
    path.write_bytes(path.read_bytes()[:-1])
    count = store.intake(attempt.attempt_id, spool)
    assert (count.iterations, count.bad_lines, count.ranks_done) == (3, 0, frozenset())


def test_useless_lines_become_one_event_a_file_and_nothing_else_is_lost(
    store: Store, begun: tuple[AttemptRow, Path]
) -> None:
    attempt, spool = begun
    good = [json.dumps(record).encode() + b"\n" for record in rank_records(attempt.uid, 0, 3)]
    bad = [
        b"\x00\xff\xfe garbage\n", b"[1]\n", b"{}\n", b'{"kind": 3}\n', b"[" * 100_000 + b"\n",
        b'{"kind": "iter\n',
        json.dumps(iteration_record(0, 7, offload_s="soon")).encode() + b"\n",
        json.dumps(iteration_record(0, 7, freed_bytes=2**70)).encode() + b"\n",
        json.dumps(iteration_record(0, 2**40)).encode() + b"\n",
        json.dumps(iteration_record(0, 7, iteration=None)).encode() + b"\n",
        b'{"kind": "timed_from", "at": "yesterday"}\n',
    ]  # fmt: skip
    newer = json.dumps(iteration_record(0, 3, new_column=[1])).encode()
    later = b'{"kind": "of tomorrow", "x": 1}\n' + newer + b"\n"
    (spool / "rank0.jsonl").write_bytes(good[0] + b"".join(bad) + b"".join(good[1:]) + later)
    for _ in range(2):
        count = store.intake(attempt.attempt_id, spool)
        assert (count.iterations, count.bad_lines, count.ranks_done) == (4, len(bad), frozenset({0}))
    notes = [event for event in store.events(attempt.job_id) if event.kind == "note"]
    assert len(notes) == 1
    assert "rank0.jsonl: line 2" in str(notes[0].message)


@pytest.mark.parametrize("rank", [2**31, 2**63, -1, True, "0"])
def test_rank_that_is_none_gives_way_to_the_files_own(
    store: Store, begun: tuple[AttemptRow, Path], rank: object
) -> None:
    attempt, spool = begun
    write_spool(spool / "rank0.jsonl", [{"kind": "final", "rank": rank, "iterations": 0, "at": None}])
    assert store.intake(attempt.attempt_id, spool).ranks_done == frozenset({0})


@pytest.mark.parametrize("spoil", ["removed", "emptied", "unreadable"])
def test_spool_that_went_before_it_was_taken_in_is_no_result_not_ok(
    store: Store, begun: tuple[AttemptRow, Path], spoil: str
) -> None:
    attempt, spool = begun
    path = write_spool(spool / "rank0.jsonl", rank_records(attempt.uid, 0, 3))
    if spoil == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()
    if spoil == "unreadable":  # also for root
        path.symlink_to(path)
    assert store.finish_attempts([(AttemptEnd(attempt.attempt_id, JobStatus.ok), spool)]) == [True]
    after = store.attempt(attempt.attempt_id)
    assert after is not None
    assert (after.status, after.failure_kind) == (JobStatus.failed, FailureKind.no_result)
    assert "final record" in (after.message or "")


def test_file_of_another_attempt_is_left_out(store: Store, begun: tuple[AttemptRow, Path]) -> None:
    attempt, spool = begun
    write_spool(spool / "rank0.jsonl", rank_records("somebody else", 0, 3))
    count = store.intake(attempt.attempt_id, spool)
    assert (count.iterations, count.ranks_done) == (0, frozenset())
    assert store.intake(10**6, spool).lines == 0
    assert store.intake(attempt.attempt_id, spool / "nowhere").lines == 0


def test_line_longer_than_the_limit_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.spoolfile.LONGEST_LINE_BYTES", 64)
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b"x" * 1000 + b'\n{"kind": "final"}\n' + b"y" * 500)
    lines = list(read_lines(path))
    assert [(line.number, line.record is None) for line in lines] == [(1, True), (2, False)]


_RECORDS: list[dict[str, Any]] = [
    {"kind": "start", "attempt_uid": "u", "rank": 0},
    *(iteration_record(0, number) for number in range(4)),
    {"kind": "final", "rank": 0, "iterations": 4, "at": "2026-07-01T12:00:06Z"},
]
_BYTES = b"".join(json.dumps(record).encode() + b"\n" for record in _RECORDS)


@given(cut=st.integers(0, len(_BYTES)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spool_cut_at_any_byte_gives_every_complete_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(_BYTES[:cut])
    complete = _BYTES[:cut].count(b"\n")
    assert [line.record for line in read_lines(path)] == _RECORDS[:complete]


@given(garbage=st.binary(max_size=300), place=st.integers(0, len(_RECORDS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_between_lines_loses_no_line(tmp_path: Path, garbage: bytes, place: int) -> None:
    lines = _BYTES.splitlines(keepends=True)
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b"".join([*lines[:place], garbage + b"\n", *lines[place:]]))
    found = [line.record for line in read_lines(path) if line.record in _RECORDS]
    assert found == _RECORDS


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_KEYS = st.sampled_from(
    "kind rank iteration offload_s freed_bytes is_warmup sample phase at_s at loop_s message status pid host"
    " attempt_uid ds_config traceback nonfinite iterations state_split".split()
)
_KINDS = st.sampled_from("start environment attempt timed_from timed_to iteration sample error final".split())


@given(records=st.lists(st.tuples(_KINDS, st.dictionaries(_KEYS, _ANYTHING)), max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_record_can_crash_the_intake(
    store: Store, begun: tuple[AttemptRow, Path], records: list[tuple[str, dict[str, object]]]
) -> None:
    attempt, spool = begun
    write_spool(spool / "rank0.jsonl", [{**record, "kind": kind} for kind, record in records])
    count = store.intake(attempt.attempt_id, spool)
    assert count.lines == len(records) or count.bad_lines
    assert store.attempt(attempt.attempt_id) is not None
