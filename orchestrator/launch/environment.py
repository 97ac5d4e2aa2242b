"""The environment of a rank, and which part of it a fork server must already have been started with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from orchestrator.launch.order import LaunchOrder, RankPlacement

_APPLIED_AFTER_FORK = ("NCCL_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_VISIBLE_DEVICES")
"""Variables (or prefixes ending in ``_``) that nothing reads before the rank touches its device."""

_NEVER_INHERITED = (
    "LOCAL_SIZE",  # DeepSpeed's shared-memory op then leaves 69 MB a rank in /dev/shm for ever
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CROSS_RANK",
    "CROSS_SIZE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)

DEFAULT_REGISTER_THREADS = 16


class PinBackendUnsupported(ValueError):
    """``pin_backend`` asks for something unknown."""


def allocator_settings(pin_backend: object) -> str | None:
    """The value of ``PYTORCH_CUDA_ALLOC_CONF`` for a ``pin_backend``; None = torch's defaults."""
    if pin_backend in (None, "default"):
        return None
    name, _, threads = str(pin_backend).partition(":")
    if name == "host_register" and (not threads or threads.isdigit()):
        count = int(threads) if threads else DEFAULT_REGISTER_THREADS
        return f"pinned_use_cuda_host_register:True,pinned_num_register_threads:{count}"
    if pin_backend == "exact":
        # Buffers above the threshold are not rounded to a power of two; torch 2.11 refuses the key.
        return "pinned_max_round_threshold_mb:1"
    raise PinBackendUnsupported(f"pin_backend {pin_backend!r} is unknown")


@cache
def import_root() -> Path:
    """The folder that ``orchestrator`` and ``worker`` are imported from."""
    return Path(__file__).resolve().parents[2]


def python_path() -> dict[str, str]:
    """``PYTHONPATH`` with which a child finds this orch from any working directory."""
    root = import_root()
    given = os.environ.get("PYTHONPATH", "")
    if root.name in ("site-packages", "dist-packages") or str(root) in given.split(os.pathsep):
        return {"PYTHONPATH": given} if given else {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), given)))}


def visible_devices(ranks: tuple[RankPlacement, ...], accelerator: str) -> str | None:
    """``CUDA_VISIBLE_DEVICES`` of these ranks, in the order of local ranks; None on CPU.

    Indices in the order of the PCI bus, which is NVML's: DeepSpeed's ZeRO-1/2 optimizer parses the
    variable as integers and stops at a UUID (``cuda_accelerator.py``, ``_get_nvml_gpu_id``). A rank
    compares the UUID of the device that it got with the one that it was given.
    """
    if accelerator != "cuda":
        return None
    placed = sorted(ranks, key=lambda placement: placement.local_rank)
    return ",".join(str(p.device_uuid if p.device_index is None else p.device_index) for p in placed)


def job_environment(order: LaunchOrder, ranks: tuple[RankPlacement, ...], port: int) -> dict[str, str]:
    """What all ranks of a group have in common beyond the inherited environment."""
    variables = {
        **python_path(),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": order.accelerator,
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": order.master_addr,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(order.world_size),
        "ORCH_ATTEMPT": order.attempt_uid,
    }
    visible = visible_devices(ranks, order.accelerator)
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    settings = allocator_settings(order.parameters.get("pin_backend"))
    if settings is not None:
        variables["PYTORCH_CUDA_ALLOC_CONF"] = settings
    variables.update(order.env)
    return variables


def rank_variables(placement: RankPlacement) -> dict[str, str]:
    """What differs from rank to rank."""
    return {"RANK": str(placement.rank), "LOCAL_RANK": str(placement.local_rank)}


def inherited(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would mislead a rank."""
    source = os.environ if environment is None else environment
    return {key: value for key, value in source.items() if key not in _NEVER_INHERITED}


def is_applied_after_fork(name: str) -> bool:
    """Whether a forked child may still set the variable with full effect."""
    return any(
        name.startswith(entry) if entry.endswith("_") else name == entry for entry in _APPLIED_AFTER_FORK
    )


def server_environment(accelerator: str, cell_env: Mapping[str, str]) -> dict[str, str]:
    """The variables that a fork server for such a cell is started with; equal ones share a server."""
    variables = {
        **python_path(),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": accelerator,
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    variables.update({key: value for key, value in cell_env.items() if not is_applied_after_fork(key)})
    return variables
