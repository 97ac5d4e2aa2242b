"""The connection to Ray: how orch gets it, what the cluster has, what the end of a task means.

Also where ray itself is imported, with usage statistics off.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.engines.base import Capacity
from orchestrator.engines.remote import Word
from orchestrator.errors import EngineError
from orchestrator.spec.options import RayOptions
from orchestrator.store.status import JobStatus

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

try:
    import ray
    import ray.util
    from ray import exceptions as ray_errors
    from ray.util import scheduling_strategies as scheduling
except ImportError as error:
    raise EngineError("Ray is not installed", "engine ray", "pip install 'offload-orch[ray]'") from error

__all__ = ["cluster_capacity", "connect", "living_nodes", "ray", "scheduling", "wants_gpus", "word_of"]

_ANSWER_WITHIN_S = 10.0
_START = "start it with ray start --head, or leave the address out for a cluster of this host alone"


def connect(options: RayOptions) -> bool:
    """Connect to the cluster at the address, or start a Ray of this host alone: True then.

    Raises:
        EngineError: there is no cluster at the address.
    """
    address = options.address or os.environ.get("RAY_ADDRESS")
    if address:
        _require_answer(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            ray.init(address="local", include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EngineError(
            f"cannot connect to Ray at {address or 'this host'}: {error}", "engine ray", _START
        ) from error
    return not address


def living_nodes() -> list[Mapping[str, float]]:
    """The resources of each node that Ray counts as alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def word_of(error: BaseException) -> Word:
    """What the end of a Ray task without a result means for its attempt."""
    if isinstance(error, ray_errors.OutOfMemoryError):
        return Word(JobStatus.oom_host, "Ray killed the node's task: host memory ran out")
    if isinstance(error, ray_errors.TaskCancelledError):
        return Word(JobStatus.cancelled, "its Ray task was cancelled")
    if isinstance(error, ray_errors.RayTaskError):
        cause = error.cause if error.cause is not None else error
        lines = str(cause).strip().splitlines() or [repr(cause)]
        return Word(JobStatus.lost, f"its node could not run it: {lines[-1]}", retry=True)
    name = type(error).__name__
    return Word(JobStatus.lost, f"Ray lost its node or worker ({name})", retry=True)


def _require_answer(address: str) -> None:
    """Raises EngineError where nobody listens: Ray itself would try for minutes."""
    if address.startswith("ray://"):
        fix = "run orch on a node of the cluster and give its address, e.g. auto"
        raise EngineError("orch is a driver, not a Ray Client", f"address {address}", fix)
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _ANSWER_WITHIN_S).close()
    except OSError as error:
        raise EngineError(f"cannot connect to Ray at {address}: {error}", "engine ray", _START) from error


def wants_gpus(nodes: Sequence[Mapping[str, float]]) -> bool:
    """Whether ranks get GPUs: the nodes have some, and nobody has said that they are not to."""
    there = any(node.get("GPU") for node in nodes)
    return there and os.environ.get("DS_ACCELERATOR", "cuda") == "cuda"


def cluster_capacity(nodes: Sequence[Mapping[str, float]], kind: str) -> Capacity:
    """What the nodes can give, ``kind`` being what a rank takes one of: ``GPU`` or ``CPU``."""
    each = [int(node.get(kind, 0)) for node in nodes]
    return Capacity(
        slots=sum(each),
        ranks_per_node=max(each, default=0),
        nodes=sum(1 for count in each if count) or 1,
        accelerator="cuda" if kind == "GPU" else "cpu",
        label=f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}, {sum(each)} {kind}s",
    )
