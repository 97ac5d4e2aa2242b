"""Every way an attempt can end has a verdict, and only full delivery is ok."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.launch.spool import ErrorRecord
from orchestrator.launch.verdict import AttemptFacts, RankFacts, Stop, judge, may_pass
from orchestrator.store.status import FailureKind, JobStatus, Verdict

errors = st.builds(
    ErrorRecord,
    st.sampled_from(["failed", "oom_gpu", "oom_host", "skipped", "nonsense"]),
    st.sampled_from([None, "exception", "unsupported", "nonsense"]),
    st.sampled_from(
        [
            "",
            "CUDA out of memory",
            "Address already in use",
            "Connection closed by peer",
            "No space left on device",
        ]
    ),
)
ranks = st.builds(
    RankFacts,
    rank=st.integers(0, 7),
    final=st.booleans(),
    error=st.none() | errors,
    states_intact=st.booleans(),
    devices_ok=st.booleans(),
    exit_status=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    oom_killed=st.booleans(),
    last_line=st.text(max_size=20),
)
facts = st.builds(
    AttemptFacts,
    ranks=st.lists(ranks, max_size=4).map(tuple),
    stop=st.none() | st.sampled_from(Stop),
    stop_detail=st.text(max_size=20),
    launcher=st.sampled_from(["fork", "spawn", "deepspeed"]),
    launcher_exit_status=st.none() | st.integers(0, 255),
    launcher_signal=st.none() | st.integers(1, 31),
    launcher_oom_killed=st.booleans(),
)


@given(facts)
def test_judge_any_facts_is_ok_exactly_if_all_delivered_whole(seen: AttemptFacts) -> None:
    verdict = judge(seen)
    whole = bool(seen.ranks) and all(r.final and r.states_intact and r.devices_ok for r in seen.ranks)
    assert (verdict.status == JobStatus.ok) == whole
    assert (verdict.failure_kind is not None) == (verdict.status == JobStatus.failed)
    assert verdict.status.is_final
    assert (verdict.message is None) == whole


@given(facts, st.integers(0, 3), st.integers(0, 3))
def test_may_pass_never_retries_what_is_neither_failed_nor_lost_with_its_place(
    seen: AttemptFacts, left: int, infra: int
) -> None:
    verdict = judge(seen)
    if may_pass(verdict, seen.stop, left, infra):
        place_failed = verdict.status == JobStatus.lost
        assert verdict.status == JobStatus.failed or place_failed
        assert infra > 0 if place_failed else left > 0 or infra > 0


@pytest.mark.parametrize(
    "seen",
    [
        AttemptFacts(
            (
                RankFacts(
                    0, error=ErrorRecord("failed", "exception", "OSError: [Errno 28] No space left on device")
                ),
            )
        ),
        AttemptFacts(
            (
                RankFacts(
                    0,
                    exit_status=1,
                    last_line="OSError: [Errno 28] No space left on device: '/r/rank0.jsonl'",
                ),
            )
        ),
        AttemptFacts((RankFacts(0, exit_status=1, last_line="OSError: [Errno 122] Disk quota exceeded"),)),
        AttemptFacts(
            (
                RankFacts(0, error=ErrorRecord("failed", "exception", "Connection closed by peer")),
                RankFacts(1, exit_status=1, last_line="OSError: [Errno 28] No space left on device"),
            )
        ),
        AttemptFacts(
            (RankFacts(0),), stop=Stop.NOT_STARTED, stop_detail="[Errno 28] No space left on device: '/r'"
        ),
        AttemptFacts(
            (RankFacts(0),), launcher_exit_status=1, launcher_last_line="cp: No space left on device"
        ),
    ],
)
def test_judge_full_disk_loses_the_attempt_and_not_the_job(seen: AttemptFacts) -> None:
    verdict = judge(seen)
    assert (verdict.status, verdict.failure_kind) == (JobStatus.lost, None)
    assert "No space left on" in (verdict.message or "") or "quota" in (verdict.message or "")
    assert may_pass(verdict, seen.stop, 0, 1)
    assert not may_pass(verdict, seen.stop, 1, 0)


def test_judge_rank_that_printed_of_a_full_disk_and_delivered_or_was_stopped_is_not_lost() -> None:
    said = "No space left on device"
    assert judge(_one(final=True, last_line=said)).status == JobStatus.ok
    timeout = AttemptFacts((RankFacts(0, exit_status=1, last_line=said),), stop=Stop.TIMEOUT)
    assert judge(timeout).status == JobStatus.timeout
    assert judge(_one(exit_status=0, last_line=said)).failure_kind == FailureKind.no_result


def _one(**fields: object) -> AttemptFacts:
    return AttemptFacts(ranks=(RankFacts(0, **fields),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "status", "kind", "words"),
    [
        (_one(exit_status=0), "failed", "no_result", "no final record of rank 0"),
        (_one(signal=9), "failed", "killed", "rank 0 was killed by SIGKILL"),
        (_one(signal=9, oom_killed=True), "oom_host", None, "SIGKILL: host memory ran out"),
        (_one(signal=11), "failed", "killed", "SIGSEGV"),
        (_one(exit_status=137), "failed", "killed", "SIGKILL"),
        (_one(exit_status=1, last_line="ValueError: x"), "failed", "exception", "ValueError: x"),
        (_one(error=ErrorRecord("oom_gpu", None, "out of memory")), "oom_gpu", None, "out of memory"),
        (_one(error=ErrorRecord("skipped", None, "fp16")), "skipped", None, "fp16"),
        (_one(error=ErrorRecord("failed", "exception", "EADDRINUSE")), "failed", "port", "EADDRINUSE"),
        (_one(final=True, states_intact=False), "failed", "states_changed", "rank 0"),
        (_one(exit_status=1, devices_ok=False), "failed", "wrong_device", "rank 0"),
    ],
)
def test_judge_one_rank(seen: AttemptFacts, status: str, kind: str | None, words: str) -> None:
    verdict = judge(seen)
    assert (verdict.status, verdict.failure_kind) == (status, kind)
    assert words in (verdict.message or "")


@pytest.mark.parametrize("exit_status", [137, 247])
def test_b3_judge_launcher_status_names_the_signal_of_a_rank(exit_status: int) -> None:
    seen = AttemptFacts(ranks=(RankFacts(0),), launcher="deepspeed", launcher_exit_status=exit_status)
    assert judge(seen) == Verdict(JobStatus.failed, FailureKind.killed, "a rank was killed by SIGKILL")


def test_b1_judge_launcher_killed_is_no_result() -> None:
    verdict = judge(AttemptFacts(ranks=(RankFacts(0),), launcher="deepspeed", launcher_signal=9))
    assert verdict.failure_kind == FailureKind.no_result
    assert "SIGKILL" in (verdict.message or "")


def test_b2_judge_launcher_status_0_with_a_record_missing_is_no_result() -> None:
    seen = AttemptFacts(
        ranks=(RankFacts(0, final=True), RankFacts(1)), launcher="deepspeed", launcher_exit_status=0
    )
    assert judge(seen) == Verdict(JobStatus.failed, FailureKind.no_result, "no final record of rank 1")


def test_judge_killed_rank_outweighs_what_its_peers_say() -> None:
    lost = ErrorRecord("failed", "exception", "Connection closed by peer")
    verdict = judge(AttemptFacts(ranks=(RankFacts(0, error=lost), RankFacts(1, signal=9))))
    assert verdict.failure_kind == FailureKind.killed


def test_judge_delivered_before_the_stop_is_ok() -> None:
    assert judge(AttemptFacts(ranks=(RankFacts(0, final=True),), stop=Stop.TIMEOUT)).status == JobStatus.ok


def test_may_pass_port_uses_infrastructure_retries() -> None:
    port = Verdict(JobStatus.failed, FailureKind.port, "in use")
    assert may_pass(port, None, 0, 1)
    assert not may_pass(port, None, 1, 0)
