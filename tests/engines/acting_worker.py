"""A rank that does what the cell's ``micro_batch`` says, free of torch: ``tests.engines.acting_worker:main``.

An axis and not an environment variable, since another environment means another fork server.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.engines import family

OK, NO_RESULT, RAISES, KILLED, IGNORES_TERM, GRANDCHILD, FAILS_ONCE, PRINTS = range(1, 9)
SECOND_SILENT, SLOW_ONCE, WAITS_FOR_GO, FAMILY = range(9, 13)
PRINTS_MUCH, STOPS, STOPS_LATE, LOSES_SPOOL, SPOILS_SPOOL, EXCLUSIVE = range(13, 19)

_HELD: list[Any] = []


def main(job_path: str, rank: int) -> NoReturn:
    """Behave, deliver the records if the behaviour has any, and leave."""
    job = json.loads(Path(job_path).read_text())
    parameters = job["parameters"]
    action, iterations = parameters["micro_batch"], parameters["iteration"]
    spool = Path(job["spool_dir"]) / f"rank{rank}.jsonl"
    spool.parent.mkdir(parents=True, exist_ok=True)
    with spool.open("a") as file:
        _say(file, kind="start", v=1, attempt_uid=job["attempt_uid"], rank=rank, pid=os.getpid(),
             host=os.uname().nodename, device_uuid=None, launch_mode=job["launch_mode"],
             ranks=job["world_size"])  # fmt: skip
        _act(action, rank, Path(job["run_dir"]))
        if action == FAMILY:
            family.start()
            family.leave_shared_memory(job["port"], rank)
        _say(file, kind="timed_from", rank=rank, at="2026-01-01T00:00:00Z")
        for number in range(iterations):
            time.sleep(parameters["dwell_s"])
            _say(file, kind="iteration", rank=rank, iteration=number, is_warmup=number == 0,
                 is_cold=number == 0, is_instrumented=False, offload_s=0.001, reload_s=0.001,
                 states_intact=True, devices_ok=True)  # fmt: skip
            if action == STOPS_LATE:
                os.kill(os.getpid(), signal.SIGSTOP)
        if action == SPOILS_SPOOL:
            os.write(
                file.fileno(), b"\0\xff{" + b"[" * 100_000 + b'\n{"kind": "final", "rank": 4294967296}\n'
            )
        _say(file, kind="final", rank=rank, iterations=iterations, at="2026-01-01T00:00:00Z")
    if action == LOSES_SPOOL and rank == 0:
        spool.unlink()
    os._exit(0)


def _act(action: int, rank: int, run_dir: Path) -> None:
    if action == NO_RESULT or (action == SECOND_SILENT and rank == 1):
        os._exit(0)
    if action == RAISES:
        raise RuntimeError("as asked")
    if action == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if action == IGNORES_TERM:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if action == GRANDCHILD:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if action == FAILS_ONCE:
        marker = run_dir.parent / "failed-once"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if action == SLOW_ONCE:
        marker = run_dir.parent / "slow-once"
        if not marker.exists():
            marker.touch()
            _wait_for(run_dir / "go-on")
    if action in (PRINTS, WAITS_FOR_GO):
        print("devices", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
    if action == WAITS_FOR_GO:
        _wait_for(run_dir.parents[2] / "go")
    if action == EXCLUSIVE:
        _HELD.append(_place(Path(os.environ["ACT_TOGETHER"]), int(os.environ["ACT_PLACES"])))
        _HELD.append(socket.create_server(("0.0.0.0", int(os.environ["MASTER_PORT"])), reuse_port=False))
    if action == PRINTS_MUCH:
        print("x" * 60_000, flush=True)
    if action == STOPS:
        os.kill(os.getpid(), signal.SIGSTOP)
    if action == PRINTS:
        print("a line for the log", flush=True)
        print("and one for stderr", file=sys.stderr, flush=True)


def _place(folder: Path, count: int) -> Any:
    """A place that nobody else has while this process lives; its absence is written down."""
    for number in range(count):
        file = (folder / f"place{number}").open("a")
        with contextlib.suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
    (folder / f"violation-{os.getpid()}").write_text(f"{os.getcwd()}: no place left\n")
    return None


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def _say(file: Any, **record: object) -> None:
    file.write(json.dumps(record) + "\n")
    file.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
