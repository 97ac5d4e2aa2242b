"""The command lines by which ranks are started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.spec.jobfile import DEFAULT_WORKER


def spawn_command(worker: str, job_file: Path, rank: int) -> list[str]:
    """One Python process that is one rank."""
    return [
        sys.executable,
        "-P",
        "-m",
        "worker.guarded",
        str(os.getpid()),
        "--worker",
        worker,
        "--job",
        str(job_file),
        "--rank",
        str(rank),
    ]


def sampler_command(job_file: Path) -> list[str]:
    """The process that samples memory from outside the ranks."""
    return [
        sys.executable,
        "-P",
        "-m",
        "worker.guarded",
        str(os.getpid()),
        "--exec",
        sys.executable,
        "-P",
        "-m",
        "worker.sampler",
        "--job",
        str(job_file),
    ]


def deepspeed_order(ranks: Sequence[RankPlacement]) -> tuple[RankPlacement, ...]:
    """The ranks as the ``deepspeed`` command numbers them: it sorts devices by index."""
    indices = sorted(placement.device_index for placement in ranks if placement.device_index is not None)
    if not indices:
        return tuple(ranks)
    by_index = {placement.device_index: placement for placement in ranks}
    ordered = sorted(ranks, key=lambda placement: placement.local_rank)
    return tuple(
        RankPlacement(
            place.rank,
            place.local_rank,
            index,
            by_index[index].device_uuid,
            by_index[index].numa_node,
        )
        for place, index in zip(ordered, indices, strict=True)
    )


def deepspeed_command(
    order: LaunchOrder, ranks: Sequence[RankPlacement], port: int, job_file: Path
) -> list[str]:
    """The real ``deepspeed`` command for the ranks of this node.

    ``--num_gpus`` would take devices 0 to N-1 whatever is visible, and UUIDs crash the command: devices
    are named by index. On a CPU there are none to name, and the number alone is right.
    """
    executable = Path(sys.executable).with_name("deepspeed")
    as_module = [sys.executable, "-m", "deepspeed.launcher.runner"]
    command = [str(executable)] if executable.exists() else as_module
    # A host file of the site, or none: never ours to follow.
    command.append(f"--hostfile={job_file.parent / 'no-hostfile'}")
    if order.accelerator == "cuda":
        indices = sorted(place.device_index for place in ranks if place.device_index is not None)
        command.append("--include=localhost:" + ",".join(map(str, indices)))
    else:
        command.append(f"--num_gpus={len(ranks)}")
    command += [f"--master_port={port}", "--module"]
    if order.worker == DEFAULT_WORKER:
        return [*command, "worker.rank", "--job", str(job_file)]
    return [*command, "worker.guarded", "0", "--worker", order.worker, "--job", str(job_file)]
