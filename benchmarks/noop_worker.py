"""A rank that measures nothing: it delivers every record a rank must deliver, and leaves.

For measuring orch itself (``launcher: {worker: "benchmarks.noop_worker:main"}``). Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NoReturn

_HOST = socket.gethostname()
_ITERATION = json.dumps(
    {
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
)[1:]
_BOOLEANS = ("false", "true")


def records(job: dict[str, Any], rank: int) -> Iterator[str]:
    """The records of one rank, in order, its iterations as many as the ``iteration`` axis says.

    Written out by hand, so that the benchmark measures orch and not this.
    """
    parameters = job["parameters"]
    count, warmup = int(parameters.get("iteration") or 1), int(parameters.get("warmup") or 0)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    yield (
        f'{{"kind": "start", "v": 1, "attempt_uid": "{job["attempt_uid"]}", "rank": {rank},'
        f' "pid": {os.getpid()}, "host": "{_HOST}", "device_uuid": null,'
        f' "launch_mode": "{job["launch_mode"]}", "ranks": {job["world_size"]}}}\n'
    )
    yield f'{{"kind": "timed_from", "at": "{now}"}}\n'
    for i in range(count):
        yield (
            f'{{"kind": "iteration", "rank": {rank}, "iteration": {i}, "is_warmup": {_BOOLEANS[i < warmup]},'
            f' "is_cold": {_BOOLEANS[i == 0]}, {_ITERATION}\n'
        )
    yield f'{{"kind": "timed_to", "at": "{now}", "loop_s": 0.0}}\n'
    yield f'{{"kind": "final", "rank": {rank}, "iterations": {count}, "at": "{now}"}}\n'


def dwelling(job_path: str, rank: int) -> NoReturn:
    """The same, a record every ``dwell_s`` seconds: a job that takes its time."""
    with open(job_path, encoding="utf-8") as stream:
        job = json.load(stream)
    path = os.path.join(job["spool_dir"], f"rank{rank}.jsonl")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for line in records(job, rank):
        os.write(descriptor, line.encode())
        time.sleep(float(job["parameters"]["dwell_s"]))
    os._exit(0)


def main(job_path: str, rank: int) -> NoReturn:
    """Be rank ``rank`` of the job."""
    with open(job_path, encoding="utf-8") as stream:
        job = json.load(stream)
    path = os.path.join(job["spool_dir"], f"rank{rank}.jsonl")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, "".join(records(job, rank)).encode())
    os.close(descriptor)
    os._exit(0)
