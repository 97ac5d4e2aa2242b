"""A rank that measures nothing: it delivers every record a rank must deliver, and leaves.

For measuring orch itself (``launcher: {worker: "benchmarks.noop_worker:main"}``). Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from typing import NoReturn


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def records(job: dict[str, object], rank: int) -> list[dict[str, object]]:
    """The records of one rank, in order, its iterations as many as the ``iteration`` axis says."""
    parameters = job["parameters"]
    assert isinstance(parameters, dict)
    count = int(parameters.get("iteration") or 1)
    warmup = int(parameters.get("warmup") or 0)
    lines: list[dict[str, object]] = [
        {
            "kind": "start",
            "v": 1,
            "attempt_uid": job["attempt_uid"],
            "rank": rank,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "device_uuid": None,
            "launch_mode": job["launch_mode"],
            "ranks": job["world_size"],
        },
        {"kind": "timed_from", "at": _now()},
    ]
    lines += [
        {
            "kind": "iteration",
            "rank": rank,
            "iteration": i,
            "is_warmup": i < warmup,
            "is_cold": i == 0,
            "is_instrumented": False,
            "step_s": 0.0,
            "offload_s": 0.0,
            "reload_s": 0.0,
            "freed_bytes": 0,
            "predicted_freed_bytes": 0,
            "copied_bytes": 0,
            "states_intact": True,
            "devices_ok": True,
        }
        for i in range(count)
    ]
    lines += [
        {"kind": "timed_to", "at": _now(), "loop_s": 0.0},
        {"kind": "final", "rank": rank, "iterations": count, "at": _now()},
    ]
    return lines


def main(job_path: str, rank: int) -> NoReturn:
    """Be rank ``rank`` of the job."""
    with open(job_path, encoding="utf-8") as stream:
        job = json.load(stream)
    text = "".join(json.dumps(line) + "\n" for line in records(job, rank))
    path = os.path.join(job["spool_dir"], f"rank{rank}.jsonl")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    os._exit(0)
