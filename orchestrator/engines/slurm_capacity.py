"""What can a partition give to one job, and does a job get GPUs there?"""

from __future__ import annotations

import os
from collections.abc import Sequence

from orchestrator.engines.base import Capacity
from orchestrator.engines.slurm_commands import SlurmNode
from orchestrator.engines.slurm_script import NO_GRES
from orchestrator.errors import EngineError
from orchestrator.spec.options import SlurmOptions


def wants_gpus(options: SlurmOptions, gpus_on_nodes: int) -> bool:
    """Whether ranks get GPUs: the nodes have some, and nobody has said that they are not to."""
    return (
        gpus_on_nodes > 0 and options.gres != NO_GRES and os.environ.get("DS_ACCELERATOR", "cuda") == "cuda"
    )


def partition_capacity(nodes: Sequence[SlurmNode], options: SlurmOptions, gpus: bool) -> Capacity:
    """What the nodes of the partition can give."""
    if not nodes:
        raise EngineError("the partition has no node", "engine slurm", "see sinfo")
    by_gres = options.gres not in (None, NO_GRES) or gpus
    most = max(node.gpus if by_gres and node.gpus else node.cpus for node in nodes)
    memory = [node.memory_bytes for node in nodes if node.memory_bytes is not None]
    where = f"partition {options.partition}" if options.partition else "default partition"
    return Capacity(
        ranks_per_node=most,
        nodes=len(nodes),
        accelerator="cuda" if gpus else "cpu",
        host_bytes=max(memory) if len(memory) == len(nodes) else None,
        label=f"{where}, {len(nodes)} nodes",
    )
