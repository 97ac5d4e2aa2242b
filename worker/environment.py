"""On what does this rank run? The columns of ``environment``: all that must agree for figures to compare."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from orchestrator import __version__
from orchestrator.spec.secret_names import looks_secret
from worker.device import Device
from worker.numa import node_count

PACKAGES = (
    "numpy", "triton", "ninja", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cublas-cu12",
    "nvidia-cublas", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime", "nvidia-ml-py", "psutil",
)  # fmt: skip
"""Packages whose version may move a figure."""

_ALLOWED = re.compile(
    r"^(CUDA_|NCCL_|PYTORCH_|TORCH_|DS_|OMP_|MKL_|OPENBLAS_|GLOO_|UCX_|NVIDIA_|KMP_|MALLOC_|LD_PRELOAD$"
    r"|LOCAL_SIZE$|CC$|CXX$|CUDA_HOME$|SLURM_(JOB_ID|JOB_PARTITION|NNODES|NTASKS|CPUS_ON_NODE)$)"
)
_URL_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]*@")
# They differ from job to job on one and the same stack; the allocator's settings are the axis pin_backend.
_PER_JOB = {
    "CUDA_VISIBLE_DEVICES", "TORCH_EXTENSIONS_DIR", "SLURM_JOB_ID", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
}  # fmt: skip
# A container image's conditions on drivers: long, and no process reads them after its start.
_NOISE = {"NVIDIA_REQUIRE_CUDA", "NVIDIA_PRODUCT_NAME", "NVIDIA_DRIVER_CAPABILITIES"}


def variables(environ: Mapping[str, str], cell_env: Mapping[str, str]) -> dict[str, str]:
    """The environment variables worth keeping: allowed names, secrets masked.

    The cell's own are left out: they are what is compared (``job.env`` has them), and cells of one sweep
    would else count as run on stacks of their own.
    """
    kept = {}
    for name, value in sorted(environ.items()):
        if name in _PER_JOB | _NOISE or name in cell_env or not _ALLOWED.match(name):
            continue
        kept[name] = "***" if looks_secret(name) else _URL_PASSWORD.sub(r"\1***@", value)
    return kept


@cache
def package_versions() -> dict[str, str]:
    """Installed versions of ``PACKAGES``; a fork server looks them up once for all its ranks."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe(device: Device, cell_env: Mapping[str, str]) -> dict[str, object]:
    """The columns of ``environment`` without its ids and time."""
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "os": _os_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl_version() if device.is_cuda else None,
        "deepspeed": _version("deepspeed"),
        "orch": __version__,
        "accelerator": device.type,
        "cpu_name": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "ram_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "numa_nodes": node_count(),
        "variables": json.dumps(variables(os.environ, cell_env), sort_keys=True),
        "packages": json.dumps(package_versions(), sort_keys=True),
        **_gpu(device),
    }


def _gpu(device: Device) -> dict[str, object]:
    names = ("driver", "gpu_name", "gpu_count", "gpu_bytes", "pcie_generation", "pcie_width")
    columns: dict[str, object] = dict.fromkeys(names)
    if not device.is_cuda:
        return columns
    properties = torch.cuda.get_device_properties(device.index)
    columns.update(gpu_name=properties.name, gpu_bytes=int(properties.total_memory))
    columns.update(gpu_count=torch.cuda.device_count())
    columns.update(nvml_columns(device.uuid))
    return columns


def nvml_columns(uuid: str | None) -> dict[str, object]:
    """Driver and link of a device as NVML knows them; empty where NVML does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return {}
    columns: dict[str, object] = {}
    try:
        columns["driver"] = _text(pynvml.nvmlSystemGetDriverVersion())
        columns["gpu_count"] = int(pynvml.nvmlDeviceGetCount())
        handle = nvml_handle(pynvml, uuid)
        # The largest link of card and slot: an idle card clocks its link down.
        columns["pcie_generation"] = int(pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        columns["pcie_width"] = int(pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
    except Exception:
        pass
    finally:
        pynvml.nvmlShutdown()
    return columns


def nvml_handle(pynvml: Any, uuid: str | None) -> Any:
    """NVML's handle of a device by its UUID."""
    if uuid is None:
        return pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except TypeError:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _nccl_version() -> str | None:
    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError, ImportError):
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _os_name() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return platform.system()
    return release.get("PRETTY_NAME", platform.system())


def _cpu_name() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None
