"""The job file: everything that a rank is told, as JSON in its run directory.

Written by the launcher, read by ``worker.rank``. Standard library only, so that a rank which reads it
has nothing foreign in its heap.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from orchestrator.spec.axes import AxisValue

JOB_FILE_VERSION = 1

Role = Literal["measured", "neighbour"]

DEFAULT_WORKER = "worker.rank:main"
"""The rank that measures, as ``module:function``."""
INSTALL_WORKER = "pip install 'offload-orch[worker]'"
"""What that rank needs and a bare install leaves out."""


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Where one rank runs.

    Attributes:
        rank: global rank.
        local_rank: rank on its node; also its index in ``visible_devices``.
        device_index: index of the device in NVML's order on its host; None on CPU.
        device_uuid: ``GPU-...``; None on CPU.
        numa_node: NUMA node next to the device; None if the host does not say.
    """

    rank: int
    local_rank: int
    device_index: int | None = None
    device_uuid: str | None = None
    numa_node: int | None = None

    def to_json(self) -> dict[str, object]:
        """The placement as a JSON object."""
        return {
            "rank": self.rank,
            "local_rank": self.local_rank,
            "device_index": self.device_index,
            "device_uuid": self.device_uuid,
            "numa_node": self.numa_node,
        }


@dataclass(frozen=True, slots=True)
class JobFile:
    """What the ranks of one attempt on one node are told.

    Attributes:
        parameters: every axis and its value; None = inactive.
        ds: nested DeepSpeed overrides.
        env: environment variables of the cell, already set in the rank's environment.
        world_size: ranks on all nodes together.
        local_size: ranks on this node.
        launch_mode: fork, spawn, deepspeed or alone.
        commit: the rank commits its own spool after its last timed section.
        db_url: None = no database, records stay in the spool.
        start_timeout_s: seconds a rank may take until its first timed operation.
        ranks: the ranks of this node.
        visible_devices: this node's devices as ``CUDA_VISIBLE_DEVICES`` names them, in the order of local
            ranks; None on CPU.
        role: a neighbour repeats the loop until it is stopped; nobody takes its records in.
    """

    attempt_uid: str
    attempt_id: int
    job_id: int
    sweep: str
    parameters: Mapping[str, AxisValue]
    ds: Mapping[str, object]
    env: Mapping[str, str]
    world_size: int
    num_nodes: int
    node_rank: int
    local_size: int
    master_addr: str
    port: int
    accelerator: str
    launch_mode: str
    commit: bool
    db_url: str | None
    run_dir: str
    spool_dir: str
    start_timeout_s: float
    ranks: tuple[RankPlacement, ...]
    visible_devices: str | None = None
    role: Role = "measured"

    def placement(self, rank: int) -> RankPlacement:
        """The placement of a global rank; KeyError if it does not run on this node."""
        for placement in self.ranks:
            if placement.rank == rank:
                return placement
        raise KeyError(rank)

    def to_json(self) -> dict[str, object]:
        """The file's content as a JSON object."""
        document: dict[str, object] = {"v": JOB_FILE_VERSION}
        for name in _FIELDS:
            document[name] = getattr(self, name)
        document["ranks"] = [placement.to_json() for placement in self.ranks]
        return document

    def write(self, path: Path | str) -> None:
        """Write the file with mode 0600 (it may hold a database password); appears whole."""
        temporary = f"{path}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(self.to_json()))
        os.replace(temporary, path)


_FIELDS = tuple(field.name for field in fields(JobFile))


def job_from_json(document: Mapping[str, Any]) -> JobFile:
    """Rebuild a job file from its JSON object; ValueError for a version of another orch."""
    if document.get("v") != JOB_FILE_VERSION:
        raise ValueError(f"job file version {document.get('v')!r}, this orch reads {JOB_FILE_VERSION}")
    values = {name: document[name] for name in _FIELDS if name in document}
    values["ranks"] = tuple(RankPlacement(**placement) for placement in document["ranks"])
    return JobFile(**values)


def load_job(path: Path | str) -> JobFile:
    """Read a job file."""
    with open(path, encoding="utf-8") as stream:
        return job_from_json(json.load(stream))
