"""Does the raw link depend on how much is copied at once, on how it is pinned, and on fresh device memory?

    python -m benchmarks.link_sizes --save link_sizes.json

The link probe of a sweep copies 1 GiB again and again to the same place; a wake-up reads every byte of host
memory once and writes to device memory that has just been allocated. Each size is copied both ways as the
probe does and, up, into fresh memory; allocating it is not timed. A process for each way to pin, because the
allocator reads its settings once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from orchestrator.launch.environment import allocator_settings

SIZES = tuple(1 << power for power in (26, 28, 30, 32, 34))
BACKENDS = ("default", "host_register:16")
COPIES = 5


def measure(sizes: list[int]) -> list[dict[str, object]]:
    """A row for each size and kind of copy that the device and the host have memory for."""
    import torch

    rows: list[dict[str, object]] = []
    for size in sizes:
        if size > torch.cuda.mem_get_info()[0] // 2:
            continue
        on_host = torch.ones(size, dtype=torch.uint8, pin_memory=True)
        on_device = torch.ones(size, dtype=torch.uint8, device="cuda")
        for kind in ("down", "up", "up, fresh"):
            taken = []
            for _ in range(COPIES + 1):
                if kind == "up, fresh":
                    del on_device
                    torch.cuda.empty_cache()
                    on_device = torch.empty(size, dtype=torch.uint8, device="cuda")
                pair = (on_host, on_device) if kind == "down" else (on_device, on_host)
                taken.append(_copy_s(torch, *pair))
            seconds = median(taken[1:])
            rows.append({"bytes": size, "kind": kind, "copy_s": seconds, "gbps": size / seconds / 1e9})
        del on_host, on_device
        torch.cuda.empty_cache()
    return rows


def _copy_s(torch: Any, target: Any, source: Any) -> float:
    torch.cuda.synchronize()
    began = perf_counter()
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return perf_counter() - began


def by_backend(backend: str, sizes: list[int]) -> list[dict[str, object]]:
    """The rows of one way to pin, measured in a process of its own."""
    settings = allocator_settings(backend)
    environment = {**os.environ, **({"PYTORCH_CUDA_ALLOC_CONF": settings} if settings else {})}
    command = [sys.executable, "-m", "benchmarks.link_sizes", "--here", *map(str, sizes)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [{"pin_backend": backend, **row} for row in json.loads(done.stdout)]


def main() -> None:
    """Prints a line for each copy; exit status 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--save", type=Path, help="a file for the rows, as JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--here", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("link_sizes: there is no GPU here, and so no link", file=sys.stderr)
        sys.exit(2)
    if options.here:
        print(json.dumps(measure(options.here)))
        return
    rows = [row for backend in BACKENDS for row in by_backend(backend, options.sizes)]
    for row in rows:
        print(f"{row['pin_backend']:17s} {row['bytes']:>14,d} B  {row['kind']:9s} {row['gbps']:6.2f} GB/s")
    if options.save:
        options.save.write_text(json.dumps({"copies": COPIES, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
