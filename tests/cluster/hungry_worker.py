"""A rank that takes more memory than its allocation has: ``tests.cluster.hungry_worker:main``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NoReturn

EATEN_BYTES = 600 << 20
LIMIT_MEGABYTES = 300
"""Room for the node's supervision and an empty rank."""


def main(job_path: str, rank: int) -> NoReturn:
    """Say that it has started, eat, wait for the end; only the last rank eats."""
    job = json.loads(Path(job_path).read_text())
    start = {
        "kind": "start", "v": 1, "attempt_uid": job["attempt_uid"], "rank": rank, "pid": os.getpid(),
        "host": os.uname().nodename, "device_uuid": None, "launch_mode": job["launch_mode"],
        "ranks": job["world_size"],
    }  # fmt: skip
    with (Path(job["spool_dir"]) / f"rank{rank}.jsonl").open("a") as file:
        file.write(json.dumps(start) + "\n")
    eaten = bytearray(b"x") * (EATEN_BYTES if rank == job["world_size"] - 1 else 1)
    while True:
        time.sleep(len(eaten))
