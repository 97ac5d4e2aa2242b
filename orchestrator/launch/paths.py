"""Where the files of an attempt lie. The only module that joins these paths."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DATABASE_SERVER_RUNS = "orch-runs"
OWNER_FILE = ".supervisor"


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """The files of one attempt; ``run_dir`` is also its ranks' working directory."""

    run_dir: Path

    def make(self) -> None:
        """Make the run directory, usually a new one beside others, and the spool in it; OSError."""
        try:
            os.mkdir(self.run_dir)
            os.mkdir(self.spool_dir)
        except OSError:
            os.makedirs(self.spool_dir, exist_ok=True)

    @property
    def job_file(self) -> Path:
        """What the ranks are told; mode 0600."""
        return self.run_dir / "job.json"

    def node_job_file(self, node_rank: int) -> Path:
        """The job file of one node of several; node 0 uses ``job.json``."""
        return self.run_dir / f"job.{node_rank}.json" if node_rank else self.job_file

    def order_file(self, node_rank: int = 0) -> Path:
        """A launch order left for ``orchestrator.launch.node``."""
        return self.run_dir / f"order.{node_rank}.json"

    @property
    def batch_script(self) -> Path:
        """What Slurm runs."""
        return self.run_dir / "batch.sh"

    @property
    def spool_dir(self) -> Path:
        """Where ranks append their records."""
        return self.run_dir / "spool"

    def spool(self, rank: int) -> Path:
        """The records of one rank."""
        return self.spool_dir / f"rank{rank}.jsonl"

    @property
    def sampler_spool(self) -> Path:
        """The records of the sampler process."""
        return self.spool_dir / "sampler.jsonl"

    def log(self, rank: int) -> Path:
        """What one rank printed."""
        return self.run_dir / f"rank{rank}.log"

    @property
    def launcher_log(self) -> Path:
        """What the ``deepspeed`` command and its ranks printed."""
        return self.run_dir / "launcher.log"

    @property
    def slurm_log(self) -> Path:
        """What the batch script and Slurm's own daemon printed."""
        return self.run_dir / "slurm.log"

    @property
    def sampler_log(self) -> Path:
        """What the sampler process printed."""
        return self.run_dir / "sampler.log"

    @property
    def owner_file(self) -> Path:
        """The supervisor that answers for the attempt's processes; there as long as it has any."""
        return self.run_dir / OWNER_FILE

    @property
    def ds_config(self) -> Path:
        """The DeepSpeed config as resolved."""
        return self.run_dir / "ds_config.json"

    def neighbour(self, number: int) -> AttemptPaths:
        """The files of a neighbour group (contention); ``number`` starts at 1."""
        return AttemptPaths(self.run_dir / f"neighbour{number}")


def runs_root(db_url: str, folder: Path | None = None) -> Path:
    """The folder of all run directories: ``<file>.runs`` beside a SQLite file, else ``./orch-runs``.

    Args:
        db_url: ``sqlite:///FILE``, a plain path, or a PostgreSQL URL.
        folder: what relative paths are relative to; None = the current folder.
    """
    base = Path.cwd() if folder is None else folder
    if db_url.startswith(("postgres://", "postgresql://", "postgresql+")):
        return base / DATABASE_SERVER_RUNS
    name = db_url
    if name.startswith("sqlite:"):
        name = name.split("///", 1)[-1]
    name = name.split("?", 1)[0]
    path = base / name
    return path.with_name(path.name + ".runs")


def attempt_run_dir(db_url: str, sweep_uid: str, attempt_uid: str) -> Path:
    """The run directory of a new attempt: short, unique, and grouped by sweep."""
    return runs_root(db_url) / sweep_uid[:12] / attempt_uid
