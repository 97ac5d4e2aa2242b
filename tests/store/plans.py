"""Small plans and spools for the tests of the store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.spec.cell import Cell, make_cell
from orchestrator.spec.options import EngineOptions, LauncherOptions, Limits
from orchestrator.spec.plan import Plan, PlannedJob
from orchestrator.store import AttemptRow, NewAttempt, Store, this_owner


def make_plan(name: str = "small", cells: Sequence[Cell] | None = None, repeats: int = 1) -> Plan:
    """A plan over the cells, each repeat a round."""
    cells = (
        tuple(cells) if cells is not None else (make_cell({"hidden_dim": 64}), make_cell({"hidden_dim": 128}))
    )
    jobs = [
        PlannedJob(cell, repeat, (repeat - 1) * len(cells) + place + 1)
        for repeat in range(1, repeats + 1)
        for place, cell in enumerate(cells)
    ]
    return Plan(
        name, "name: " + name, None, cells, tuple(jobs), repeats, Limits(), EngineOptions(), LauncherOptions()
    )


def new_attempt(run_dir: Path | str, **more: Any) -> NewAttempt:
    """An attempt that this process supervises."""
    values: dict[str, Any] = {"engine": "local", "launcher": "fork", "owner": this_owner()}
    return NewAttempt(uid=uuid.uuid4().hex, run_dir=str(run_dir), **{**values, **more})


def begin_one(store: Store, tmp_path: Path, plan: Plan | None = None, **more: Any) -> tuple[AttemptRow, Path]:
    """The first job's first attempt, and its spool folder."""
    change = store.put_sweep(plan or make_plan())
    job = store.runnable(change.sweep_id)[0]
    run_dir = tmp_path / uuid.uuid4().hex
    (run_dir / "spool").mkdir(parents=True)
    attempt = store.begin_attempt(job.job_id, new_attempt(run_dir, **more))
    assert attempt is not None
    return attempt, run_dir / "spool"


def iteration_record(rank: int, number: int, **more: Any) -> dict[str, Any]:
    """A record of one iteration."""
    base: dict[str, Any] = {
        "kind": "iteration",
        "rank": rank,
        "iteration": number,
        "is_warmup": number < 1,
        "is_cold": number == 0,
        "is_instrumented": False,
        "step_s": 0.5,
        "offload_s": 0.1 + 0.01 * number + 0.001 * rank,
        "reload_s": 0.2,
        "copied_bytes": 1_000_000,
        "freed_bytes": 2_000_000,
        "predicted_freed_bytes": 2_000_000,
        "states_intact": True,
        "devices_ok": True,
    }
    return {**base, **more}


def rank_records(attempt_uid: str, rank: int, iterations: int, *, final: bool = True) -> list[dict[str, Any]]:
    """Everything that one rank writes."""
    records: list[dict[str, Any]] = [
        {"kind": "start", "v": 1, "attempt_uid": attempt_uid, "rank": rank, "pid": 1, "host": "h",
         "device_uuid": None, "launch_mode": "fork", "ranks": 1},
        {"kind": "timed_from", "at": "2026-07-01T12:00:00+00:00"},
        *(iteration_record(rank, number) for number in range(iterations)),
        {"kind": "timed_to", "at": "2026-07-01T12:00:05+00:00", "loop_s": 5.0},
    ]  # fmt: skip
    if final:
        records.append(
            {"kind": "final", "rank": rank, "iterations": iterations, "at": "2026-07-01T12:00:06Z"}
        )
    return records


def write_spool(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """The records, a line each."""
    path.write_bytes(b"".join(json.dumps(dict(record)).encode() + b"\n" for record in records))
    return path


def deliver(
    attempt: AttemptRow, spool: Path, ranks: int = 1, iterations: int = 3, *, final: bool = True
) -> None:
    """Write the whole spool of the attempt."""
    for rank in range(ranks):
        write_spool(spool / f"rank{rank}.jsonl", rank_records(attempt.uid, rank, iterations, final=final))
