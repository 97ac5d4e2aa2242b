"""A results database like one measured on an H200: the curves go through the figures that are known.

Pinned link 55.2 GB/s, collection about 0.2 s, 16384×8 (34.4 GB): pin0 nb0 14.60 / 5.86 s, pin0 nb1 4.85 /
3.53, pin1 nb0 0.85 / 0.71, pin1 nb1 0.65 / 0.71; 4096×8 pinned, non-blocking 0.222 s, frozen 0.041 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.spec.bytes import predict
from orchestrator.spec.cell import make_cell
from tests.stats.databases import Database

SIZES = ((4096, 8), (8192, 4), (8192, 8), (8192, 16), (16384, 8))
GC_S = 0.2

SETTINGS: dict[str, dict[str, object]] = {
    "pin0 nb0": {"pin_memory": False, "non_blocking": False},
    "pin0 nb1": {"pin_memory": False, "non_blocking": True},
    "pin1 nb0": {"pin_memory": True, "non_blocking": False},
    "pin1 nb1": {"pin_memory": True, "non_blocking": True},
    "pin1 nb1 frozen": {"pin_memory": True, "non_blocking": True, "gc_freeze": True},
}


def seconds(setting: str, size: float) -> tuple[float, float]:
    """True offload and reload seconds."""
    gb = size / 1e9
    offload = {
        "pin0 nb0": GC_S + gb * 14.40 / 34.36,
        "pin0 nb1": GC_S + gb * 4.65 / 34.36,
        "pin1 nb0": GC_S + gb * 0.65 / 34.36,
        "pin1 nb1": max(GC_S + 0.022, 0.003 + gb * 0.645 / 34.36),
        "pin1 nb1 frozen": gb * 0.041 / 2.147,
    }[setting]
    reload = {"pin0 nb0": 5.86, "pin0 nb1": 3.53}.get(setting, 0.705)
    return offload, 0.005 + gb * reload / 34.36


def fill(
    path: Path,
    *,
    settings: Sequence[str] = tuple(SETTINGS),
    sizes: Sequence[tuple[int, int]] = SIZES,
    repeats: int = 3,
    noise: float = 0.015,
    ranks: int = 1,
    **stack: object,
) -> None:
    """Write the database: each setting at each size, jobs scattered by ``noise``."""
    rng = np.random.default_rng(12)
    database = Database(path)
    sweep, environment = database.sweep("full"), database.environment(**stack)
    for setting in settings:
        for hidden, layers in sizes:
            axes = {"hidden_dim": hidden, "nlayers": layers, "num_gpus": ranks, **SETTINGS[setting]}
            bytes_ = predict(make_cell(axes))  # type: ignore[arg-type]
            assert bytes_.copied_bytes is not None
            offload, reload = seconds(setting, bytes_.copied_bytes)
            is_pinned = bool(SETTINGS[setting]["pin_memory"])
            rows = [
                {
                    "offload_s_median": offload * x, "reload_s_median": reload * y,
                    "link_down_gbps": 55.2 if is_pinned else 14.0, "link_up_gbps": 55.3 if is_pinned else 8.0,
                    "cold_pinning_s": (bytes_.pinned_bytes or 0) / 1.8e9,
                }
                for x, y in np.exp(rng.normal(0, noise, (repeats, 2))).tolist()
            ]  # fmt: skip
            database.jobs(sweep, environment, axes, rows)
    database.close()
