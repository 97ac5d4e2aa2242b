"""Starts the ranks of a tiny job as real processes and reads what they left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.spec.axes import AXES, AxisValue
from orchestrator.spec.jobfile import JobFile, RankPlacement

ROOT = Path(__file__).resolve().parents[2]
TINY: dict[str, AxisValue] = {"hidden_dim": 32, "nlayers": 2, "iteration": 2, "warmup": 1}
SMALL_BUCKET: dict[str, object] = {"zero_optimization": {"reduce_bucket_size": 50_000}}
RANK_TIMEOUT_S = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the ranks of a job left."""

    exit_statuses: list[int]
    records: list[list[dict[str, Any]]]
    logs: list[str]

    def of_kind(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        """The records of one kind of one rank, in order."""
        return [record for record in self.records[rank] if record["kind"] == kind]


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(*paths: Path) -> dict[str, str]:
    """The environment of a rank on a CPU."""
    found = {
        key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_SIZE")
    }
    found["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, *paths)))
    found.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    return found


def job_of(folder: Path, ranks: int, axes: Mapping[str, AxisValue], ds: Mapping[str, object]) -> JobFile:
    """A job file's content for ``ranks`` ranks of this host."""
    parameters: dict[str, AxisValue] = {axis.name: axis.default for axis in AXES}
    parameters.update(TINY, num_gpus=ranks)
    parameters.update(axes)
    return JobFile(
        attempt_uid="attempt", attempt_id=1, job_id=1, sweep="tiny", parameters=parameters, ds=ds, env={},
        world_size=ranks, num_nodes=1, node_rank=0, local_size=ranks, master_addr="127.0.0.1",
        port=free_port(), accelerator="cpu", launch_mode="spawn", commit=False, db_url=None,
        run_dir=str(folder), spool_dir=str(folder / "spool"), start_timeout_s=300.0,
        ranks=tuple(RankPlacement(rank, rank) for rank in range(ranks)),
    )  # fmt: skip


def start(job: JobFile) -> list[subprocess.Popen[str]]:
    """Start every rank in the job's directory; each writes a log there."""
    folder = Path(job.run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    job.write(folder / "job.json")
    command = [sys.executable, "-m", "worker.rank", "--job", str(folder / "job.json"), "--rank"]
    processes = []
    for rank in range(job.world_size):
        with (folder / f"rank{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [*command, str(rank)],
                    cwd=folder,
                    env=environment(folder),
                    stdout=log,
                    stderr=log,
                    text=True,
                )
            )
    return processes


def finish(job: JobFile, processes: Sequence[subprocess.Popen[str]]) -> Outcome:
    """Wait for every rank and read what it left."""
    folder = Path(job.run_dir)
    try:
        statuses = [process.wait(RANK_TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    spools = [Path(job.spool_dir) / f"rank{rank}.jsonl" for rank in range(job.world_size)]
    return Outcome(
        statuses,
        [[json.loads(line) for line in spool.read_text().splitlines()] for spool in spools],
        [(folder / f"rank{rank}.log").read_text() for rank in range(job.world_size)],
    )


def run_job(
    folder: Path,
    ranks: int = 1,
    axes: Mapping[str, AxisValue] | None = None,
    ds: Mapping[str, object] | None = None,
    **changes: Any,
) -> Outcome:
    """Run a tiny job to its end; ``changes`` replace fields of the job file."""
    job = replace(job_of(folder, ranks, axes or {}, SMALL_BUCKET if ds is None else ds), **changes)
    return finish(job, start(job))
