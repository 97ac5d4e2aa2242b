"""What a fork server imports and loads before it forks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from worker import nvml
from worker.learned import Learned
from worker.preload_ops import OpsBuild

_TORCH_WORKERS = ("worker.rank",)
"""Rank modules that need torch and DeepSpeed; any other is imported alone."""


def load(module: str, accelerator: str, cache_folder: str, on_build: Callable[[], None]) -> Learned | None:
    """Import what ranks of this worker need; None if there is nothing to learn (a torch-free worker).

    ``on_build`` is called in a child where an op must be built first.
    """
    if module not in _TORCH_WORKERS:
        return None
    import torch  # noqa: F401

    with nvml.put_off():
        import deepspeed  # noqa: F401

    ops = OpsBuild(on_build)
    from worker import environment

    environment.package_versions()
    learned = Learned(Path(cache_folder) / f"modules-{_versions_key(accelerator)}.json")
    learned.import_known()
    learned.add(ops.load())
    return learned


def _versions_key(accelerator: str) -> str:
    # Imported here: they bring threading and random, which every fork then pays for (hooks after a fork),
    # and a torch-free worker needs none of it.
    import hashlib
    import importlib.metadata

    parts = [sys.version, accelerator]
    for name in ("torch", "deepspeed", "offload-orch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{name}={importlib.metadata.version(name)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
