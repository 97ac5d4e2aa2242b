"""What are the ranks of a group told? The job file, and what a fork server has to know besides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from orchestrator.launch.environment import rank_variables, visible_devices
from orchestrator.launch.order import Launcher, LaunchOrder, RankPlacement
from orchestrator.launch.output import Output
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.servers import ForkRequest
from orchestrator.spec.jobfile import JobFile, Role

_UNSET_UNLESS_WANTED = ("PYTORCH_CUDA_ALLOC_CONF", "LOCAL_SIZE")
"""A rank must not have them from its fork server."""


def job_file_of(
    order: LaunchOrder,
    placements: tuple[RankPlacement, ...],
    paths: AttemptPaths,
    *,
    mode: Launcher,
    port: int,
    role: Role,
) -> JobFile:
    """The job file of one group on one node."""
    return JobFile(
        attempt_uid=order.attempt_uid,
        attempt_id=order.attempt_id,
        job_id=order.job_id,
        sweep=order.sweep,
        parameters=order.parameters,
        ds=order.ds,
        env=order.env,
        world_size=order.world_size,
        num_nodes=order.num_nodes,
        node_rank=order.node_rank,
        local_size=len(placements),
        master_addr=order.master_addr,
        port=port,
        accelerator=order.accelerator,
        launch_mode=mode,
        # A forked rank leaves it to the supervisor: importing the store would cost more than its start.
        commit=mode != "fork" and role == "measured" and order.db_url is not None,
        db_url=order.db_url,
        run_dir=str(paths.run_dir),
        spool_dir=str(paths.spool_dir),
        start_timeout_s=order.start_timeout_s,
        ranks=placements,
        visible_devices=visible_devices(placements, order.accelerator),
        role=role,
    )


def fork_request(
    job_file: Path,
    folder: Path,
    variables: Mapping[str, str],
    ranks: Collection[tuple[RankPlacement, Output]],
) -> ForkRequest:
    """The request to fork the ranks of a group, each with the output that it prints to."""
    return ForkRequest(
        job_file=job_file,
        folder=folder,
        variables=variables,
        unset=[name for name in _UNSET_UNLESS_WANTED if name not in variables],
        ranks=[(placement.rank, rank_variables(placement)) for placement, _ in ranks],
        outputs=[output.write_end for _, output in ranks],
    )
