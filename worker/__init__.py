"""What runs inside a rank, and the interface of DeepSpeed's offload_states example.

``SimpleModel``, ``run_model``, ``random_dataset`` and ``random_dataloader`` are imported when asked for:
importing this package alone loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "SimpleModel": "worker.model",
    "run_model": "worker.example",
    "random_dataset": "worker.data",
    "random_dataloader": "worker.data",
}

__all__ = ["SimpleModel", "random_dataloader", "random_dataset", "run_model"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
