"""What is an attempt as a Slurm job? Its files and options, and what is known of it while it runs."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engines.admission import need_of
from orchestrator.engines.remote import Followed, node_orders
from orchestrator.engines.slurm_commands import SlurmJob
from orchestrator.engines.slurm_script import sbatch_options, write_script
from orchestrator.engines.slurm_watch import EventTail
from orchestrator.errors import EngineError
from orchestrator.launch.node import load_order
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.publish import publish
from orchestrator.launch.report import NodeReport
from orchestrator.launch.setting import RunSetting
from orchestrator.spec.options import SlurmOptions
from orchestrator.store.rows import AttemptRow, JobRow


@dataclass(slots=True)
class Job:
    """An attempt as a Slurm job.

    Attributes:
        slurm_id: None until Slurm's answer is known.
        unsure: the answer of ``sbatch`` was lost: look for the name before another try.
    """

    followed: Followed
    arguments: list[str] = field(default_factory=list)
    slurm_id: str | None = None
    unsure: bool = False
    seen: SlurmJob | None = None
    misses: int = 0
    over_since_s: float | None = None
    told_started: bool = False
    tail: EventTail | None = None


def new_job(
    setting: RunSetting,
    options: SlurmOptions,
    job: JobRow,
    attempt: AttemptRow,
    tries: int,
    *,
    gpus: bool,
) -> Job:
    """The attempt as a job that nobody has handed in yet."""
    need = need_of(job)
    followed = Followed(attempt, node_orders(setting, job, attempt, "cuda" if gpus else "cpu"), tries)
    arguments = sbatch_options(
        options,
        name=attempt.uid,
        comment=f"orch {setting.sweep} {job.label}",
        folder=followed.paths.run_dir,
        nodes=need.nodes,
        ranks_per_node=need.ranks_per_node,
        gpus=gpus,
    )
    return Job(followed, arguments)


def found_job(attempt: AttemptRow, slurm_id: str) -> Job:
    """The job of an orch that is gone."""
    orders = _orders(AttemptPaths(Path(attempt.run_dir)))
    return Job(Followed(attempt, orders, attempt.number - 1), slurm_id=slurm_id)


def write_files(job: Job) -> None:
    """The order and the batch script, in the run directory; OSError as usual."""
    paths, orders = job.followed.paths, job.followed.orders
    paths.run_dir.mkdir(parents=True, exist_ok=True)
    publish(paths.order_file(), {"nodes": [order.to_json() for order in orders]}, mode=0o600)
    arguments = ["--order", str(paths.order_file())]
    write_script(paths.batch_script, "orchestrator.launch.node_start", arguments, nodes=len(orders))


def ended_from_outside(report: NodeReport) -> bool:
    """Somebody stopped the node, or killed a rank of it."""
    killed = any(rank.signal == signal.SIGKILL and not rank.oom_killed for rank in report.facts.ranks)
    return report.was_stopped or killed


def _orders(paths: AttemptPaths) -> tuple[LaunchOrder, ...]:
    try:
        count = len(json.loads(paths.order_file().read_text(encoding="utf-8"))["nodes"])
        return tuple(load_order(paths.order_file(), node) for node in range(count))
    except (OSError, ValueError, KeyError, EngineError):
        return ()
