"""What does a first offload take beyond pinning? DeepSpeed copies an empty pageable buffer into a pinned one.

    python -m benchmarks.pinning_ways --save pinning_ways.json

The same number of bytes made pinned in two ways: ``torch.empty(n).pin_memory()``, as DeepSpeed 0.19.8 makes
the buffers of its states, and ``torch.empty(n, pin_memory=True)``. Each in a process of its own, because the
allocator keeps what it has pinned. ``pinning_s`` is what the allocator says it spent on page-locking.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.link_sizes import BACKENDS
from orchestrator.launch.environment import allocator_settings

SIZES = tuple(1 << power for power in (28, 30, 32, 34))
WAYS = ("copied", "direct")


def measure(way: str, size: int) -> dict[str, object]:
    """Seconds to have ``size`` pinned bytes."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    began = perf_counter()
    if way == "copied":
        buffer = torch.empty(size, dtype=torch.uint8).pin_memory()
    else:
        buffer = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    seconds = perf_counter() - began
    assert buffer.is_pinned()
    pinning_s = torch.cuda.host_memory_stats()["host_alloc_time.total"] / 1e6
    return {"bytes": size, "way": way, "whole_s": seconds, "pinning_s": pinning_s}


def in_own_process(backend: str, way: str, size: int) -> dict[str, object]:
    """The row of one process."""
    settings = allocator_settings(backend)
    environment = {**os.environ, **({"PYTORCH_CUDA_ALLOC_CONF": settings} if settings else {})}
    command = [sys.executable, "-m", "benchmarks.pinning_ways", "--here", way, "--sizes", str(size)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return {"pin_backend": backend, **json.loads(done.stdout)}


def main() -> None:
    """Prints a line for each process; exit status 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--save", type=Path, help="a file for the rows, as JSON")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes")
    parser.add_argument("--here", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("pinning_ways: there is no GPU here, and nothing can be pinned", file=sys.stderr)
        sys.exit(2)
    if options.here:
        print(json.dumps(measure(options.here, options.sizes[0])))
        return
    rows = [
        in_own_process(backend, way, size) for backend in BACKENDS for size in options.sizes for way in WAYS
    ]
    for row in rows:
        print(
            f"{row['pin_backend']:17s} {row['bytes']:>14,d} B  {row['way']:7s} {row['whole_s']:7.3f} s,"
            f" of it {row['pinning_s']:7.3f} s pinning"
        )
    if options.save:
        options.save.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
