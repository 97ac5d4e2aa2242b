"""Memory of a job's devices and ranks, sampled from outside the ranks.

A process of its own, so that sampling costs the ranks nothing: device memory by UUID through NVML, resident
memory of each rank, and the control group. It follows the ranks by their spool files, starts when the
first timed section does, and ends when every rank of this node has left its last one, when it is told
to (SIGTERM), or when its parent is gone. Standard library and NVML only.

Usage: ``python -m worker.sampler --job FILE``
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.spec.jobfile import JobFile, RankPlacement, load_job
from orchestrator.spec.models import axis_value
from worker.host import cgroup_bytes, cgroup_memory_file, rss_bytes
from worker.recorder import Recorder

FIRST_SAMPLE = 1_000_000_000
"""Numbers below are the ranks' own samples."""

_ENDINGS = ("timed_to", "error", "final")


@dataclass(slots=True)
class Followed:
    """What is known of one rank from its spool.

    Attributes:
        pid: 0 until its start record is there.
        began_at: seconds since 1970 at which its loop began; None before.
        ended: its last timed section is over.
    """

    placement: RankPlacement
    spool: Path
    pid: int = 0
    began_at: float | None = None
    ended: bool = False
    samples: int = 0
    _offset: int = field(default=0)

    def catch_up(self) -> None:
        """Read the complete lines that are new."""
        try:
            with self.spool.open("rb") as stream:
                stream.seek(self._offset)
                text = stream.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, record: Mapping[str, Any]) -> None:
        if record["kind"] == "start":
            self.pid = int(record["pid"])
        elif record["kind"] == "timed_from":
            self.began_at = datetime.fromisoformat(record["at"]).timestamp()
        elif record["kind"] in _ENDINGS:
            self.ended = True


class DeviceMemory:
    """Used and free memory of devices by UUID; answers None where NVML does not."""

    def __init__(self, uuids: Iterable[str | None]) -> None:
        self._handles: dict[str, Any] = {}
        wanted = {uuid for uuid in uuids if uuid}
        if not wanted:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # pynvml raises its own kinds, and may be missing.
            return
        self._nvml = pynvml
        for uuid in wanted:
            try:
                self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            except pynvml.NVMLError:
                continue

    def used_and_free(self, uuid: str | None) -> tuple[int | None, int | None]:
        """Bytes used and free, all processes together."""
        handle = self._handles.get(uuid) if uuid else None
        if handle is None:
            return None, None
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.used), int(memory.free)


def follow(job: JobFile, stop: threading.Event) -> None:
    """Sample the ranks of ``job`` on this node until they are done or ``stop`` is set."""
    hz = float(axis_value(job.parameters, "sampler_hz") or 0.0)
    if hz <= 0:
        return
    spool_dir = Path(job.spool_dir)
    ranks = [Followed(place, spool_dir / f"rank{place.rank}.jsonl") for place in job.ranks]
    memory = DeviceMemory(place.device_uuid for place in job.ranks)
    cgroup_file = cgroup_memory_file()
    suffix = f"-{job.node_rank}" if job.node_rank else ""
    recorder = Recorder(spool_dir / f"sampler{suffix}.jsonl")
    parent, due = os.getppid(), time.monotonic()
    while not stop.is_set() and os.getppid() == parent:
        for rank in ranks:
            rank.catch_up()
        if all(rank.ended for rank in ranks):
            break
        for rank in ranks:
            if rank.began_at is not None and not rank.ended:
                _sample(rank, memory, cgroup_file, recorder)
        due = max(due + 1.0 / hz, time.monotonic())
        stop.wait(max(0.0, due - time.monotonic()) or 0.0001)
    recorder.close()


def _sample(rank: Followed, memory: DeviceMemory, cgroup_file: Path | None, recorder: Recorder) -> None:
    used, free = memory.used_and_free(rank.placement.device_uuid)
    recorder.write(
        "sample",
        rank=rank.placement.rank,
        sample=FIRST_SAMPLE + rank.samples,
        iteration=None,
        phase="sampler",
        at_s=time.time() - (rank.began_at or 0.0),
        device_used_bytes=used,
        device_free_bytes=free,
        rss_bytes=rss_bytes(rank.pid) if rank.pid else None,
        cgroup_bytes=cgroup_bytes(cgroup_file),
    )
    rank.samples += 1


def main() -> None:
    """The process itself."""
    parser = argparse.ArgumentParser(prog="python -m worker.sampler")
    parser.add_argument("--job", required=True, help="the job file")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    follow(load_job(options.job), stop)


if __name__ == "__main__":
    main()
