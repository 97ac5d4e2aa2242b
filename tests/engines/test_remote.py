"""What becomes of an attempt on other hosts: the nodes' reports and the scheduler's word, as one verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.engines.remote import Word, conclude
from orchestrator.engines.slurm_commands import SlurmJob, SlurmState
from orchestrator.engines.slurm_script import sbatch_options
from orchestrator.engines.slurm_watch import Pace
from orchestrator.engines.slurm_words import word_of
from orchestrator.launch.report import (
    NodeReport,
    merge_columns,
    merge_facts,
    report_from_json,
    report_to_json,
)
from orchestrator.launch.spool import ErrorRecord
from orchestrator.launch.verdict import AttemptFacts, RankFacts, Stop
from orchestrator.spec.options import SlurmOptions
from orchestrator.store.status import FailureKind, JobStatus, Verdict


def node(number: int, *ranks: RankFacts, stop: Stop | None = None, **columns: object) -> NodeReport:
    """A report of node ``number``."""
    return NodeReport(number, f"n{number}", AttemptFacts(ranks, stop, "as told" if stop else ""), columns)


def judged(
    reports: list[NodeReport],
    word: Word | None = None,
    silent: tuple[RankFacts, ...] = (),
    *,
    cancelled: bool = False,
    retries: int = 1,
) -> tuple[Verdict, bool]:
    """The verdict on those reports and that word."""
    return conclude(
        merge_facts(reports, silent),
        word or Word(),
        cancelled=cancelled,
        retries_left=retries,
        infrastructure_retries_left=3,
    )


DONE = RankFacts(0, final=True)
DONE_1 = RankFacts(1, final=True)
SILENT_1 = RankFacts(1)
STOPPED = Stop.CANCELLED


def test_every_rank_delivered_is_ok_whatever_the_scheduler_says() -> None:
    verdict, retry = judged([node(0, DONE), node(1, DONE_1)], Word(JobStatus.lost, "lost", True))
    assert (verdict.status, retry) == (JobStatus.ok, False)


def test_b2_launcher_returns_0_while_a_record_is_missing_is_no_result() -> None:
    completed = word_of(SlurmJob("7", SlurmState.COMPLETED, "COMPLETED", "n[1-2]"))
    verdict, retry = judged([node(0, DONE)], completed, (SILENT_1,))
    assert (verdict.status, verdict.failure_kind) == (JobStatus.failed, FailureKind.no_result)
    assert verdict.message == "no final record of rank 1 (Slurm says COMPLETED of job 7)"
    assert retry


def test_b2_rank_left_with_0_on_the_second_node_is_no_result() -> None:
    verdict, _ = judged([node(0, DONE), node(1, RankFacts(1, exit_status=0))])
    assert verdict.failure_kind is FailureKind.no_result


def test_node_stopped_because_of_another_explains_nothing() -> None:
    error = ErrorRecord("oom_gpu", None, "out of memory")
    verdict, _ = judged([node(0, RankFacts(0), stop=STOPPED), node(1, RankFacts(1, error=error))])
    assert verdict == Verdict(JobStatus.oom_gpu, None, "rank 1: out of memory")


def test_rank_that_names_its_trouble_wins_over_its_peer_on_another_node() -> None:
    peer = ErrorRecord("failed", "exception", "Connection closed by peer")
    cause = ErrorRecord("failed", "exception", "ValueError: as asked")
    verdict, _ = judged([node(0, RankFacts(0, error=peer)), node(1, RankFacts(1, error=cause))])
    assert verdict.message == "rank 1: ValueError: as asked"


@pytest.mark.parametrize(
    ("state", "raw", "status", "again"),
    [
        (SlurmState.CANCELLED, "CANCELLED", JobStatus.cancelled, False),
        (SlurmState.TIMEOUT, "TIMEOUT", JobStatus.timeout, False),
        (SlurmState.OUT_OF_MEMORY, "OUT_OF_MEMORY", JobStatus.oom_host, False),
        (SlurmState.NODE_LOST, "NODE_FAIL", JobStatus.lost, True),
        (SlurmState.PREEMPTED, "PREEMPTED", JobStatus.lost, True),
    ],
)
def test_word_of_slurm_wins_over_ranks_that_its_signals_ended(
    state: SlurmState, raw: str, status: JobStatus, again: bool
) -> None:
    word = word_of(SlurmJob("7", state, raw, "n1"))
    verdict, retry = judged([node(0, RankFacts(0, signal=15))], word)
    assert (verdict.status, retry) == (status, again)
    assert "7" in str(verdict.message)
    assert judged([], word, (RankFacts(0),), retries=0)[1] is False


def test_what_the_node_decided_wins_over_the_schedulers_word() -> None:
    verdict, _ = judged([node(0, RankFacts(0), stop=Stop.TIMEOUT)], Word(JobStatus.cancelled, "by hand"))
    assert verdict.status is JobStatus.timeout


def test_cancelled_by_orch_is_cancelled() -> None:
    verdict, retry = judged([node(0, RankFacts(0), stop=STOPPED)], cancelled=True)
    assert (verdict.status, retry) == (JobStatus.cancelled, False)


def test_node_stopped_by_nobody_known_is_lost_and_tried_again() -> None:
    verdict, retry = judged([node(0, RankFacts(0), stop=STOPPED)])
    assert (verdict.status, retry) == (JobStatus.lost, True)


def test_port_taken_is_tried_again_beyond_the_jobs_retries() -> None:
    error = ErrorRecord("failed", "port", "address already in use")
    verdict, retry = judged([node(0, RankFacts(0, error=error))], retries=0)
    assert (verdict.failure_kind, retry) == (FailureKind.port, True)


def test_columns_of_all_nodes_together() -> None:
    first = node(0, host="a", port=7, started_at="2026-01-02", ended_at="2026-01-03", device_uuids='["x"]')
    second = node(1, host="b", started_at="2026-01-01", ended_at="2026-01-04", device_uuids='["y"]', signal=9)
    columns = merge_columns([second, first])
    assert columns == {
        "host": "a",
        "port": 7,
        "started_at": "2026-01-01",
        "ended_at": "2026-01-04",
        "device_uuids": '["x", "y"]',
        "signal": 9,
        "hosts": '["n0", "n1"]',
    }


def test_report_survives_json() -> None:
    error = ErrorRecord("failed", "exception", "as asked")
    report = node(1, RankFacts(2, error=error, signal=9, last_line="x"), stop=Stop.HANG, host="a")
    assert report_from_json(json.loads(json.dumps(report_to_json(report)))) == report


def test_sbatch_options_name_what_the_sweep_file_names() -> None:
    options = SlurmOptions("gpu", "me", "low", "h200", 30, extra=("#SBATCH --mem=0", "--nice=5"))
    arguments = sbatch_options(
        options, name="u", comment="c", folder=Path("/r"), nodes=2, ranks_per_node=8, gpus=True
    )
    wanted_ones = (
        "--partition=gpu --account=me --qos=low --constraint=h200 --time=30 --gres=gpu:8 --nodes=2"
        " --no-requeue --mem=0 --nice=5 --cpus-per-task=8"
    )
    for wanted in wanted_ones.split():
        assert wanted in arguments


@pytest.mark.parametrize(
    ("gres", "gpus", "expected"),
    [
        (None, True, "gpu:2"),
        (None, False, None),
        ("none", True, None),
        ("gpu:h200:{gpus}", False, "gpu:h200:2"),
    ],
)
def test_sbatch_options_gres(gres: str | None, gpus: bool, expected: str | None) -> None:
    options = SlurmOptions(gres=gres, extra=("--cpus-per-gpu=4",))
    arguments = sbatch_options(
        options, name="u", comment="c", folder=Path("/r"), nodes=1, ranks_per_node=2, gpus=gpus
    )
    found = [argument for argument in arguments if argument.startswith("--gres=")]
    assert found == ([f"--gres={expected}"] if expected else [])
    assert not any(argument.startswith("--cpus-per-task") for argument in arguments)


def test_pace_slows_down_and_speeds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("orchestrator.engines.slurm_watch.time.monotonic", lambda: now[0])
    pace, pauses = Pace(1.0, 3.0), []
    for changed in (False, False, False, True):
        now[0] = pace.due_s
        pace.looked(changed=changed)
        pauses.append(pace.due_s - now[0])
    assert pauses == [1.5, 2.25, 3.0, 1.0]
