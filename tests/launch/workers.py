"""Rank functions for tests: each behaves, or misbehaves, in one way. Standard library only."""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any, NoReturn


class Spool:
    """A rank's spool."""

    def __init__(self, job_path: str, rank: int) -> None:
        with open(job_path, encoding="utf-8") as stream:
            self.job: dict[str, Any] = json.load(stream)
        self.rank = rank
        self._stream = open(f"{self.job['spool_dir']}/rank{rank}.jsonl", "a", buffering=1)  # noqa: SIM115

    def write(self, kind: str, **fields: object) -> None:
        """Append a record."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        self._stream.write(json.dumps({"kind": kind, "rank": self.rank, "at": now, **fields}) + "\n")

    def begin(self) -> None:
        """Everything up to the first timed operation."""
        self.write(
            "start",
            v=1,
            attempt_uid=self.job["attempt_uid"],
            pid=os.getpid(),
            launch_mode=self.job["launch_mode"],
            ranks=self.job["world_size"],
        )
        self.write("timed_from")

    def iterate(self, number: int, **fields: object) -> None:
        """One iteration's record."""
        self.write(
            "iteration",
            **{
                "iteration": number,
                "is_warmup": False,
                "is_cold": number == 0,
                "is_instrumented": False,
                "states_intact": True,
                "devices_ok": True,
                **fields,
            },
        )

    def deliver(self) -> None:
        """Everything from the last timed operation on."""
        self.write("timed_to", loop_s=0.01)
        self.write("final", iterations=int(self.job["parameters"]["iteration"]))


def good(job_path: str, rank: int) -> NoReturn:
    """Deliver everything."""
    spool = Spool(job_path, rank)
    spool.begin()
    for number in range(int(spool.job["parameters"]["iteration"])):
        spool.iterate(number)
    spool.deliver()
    os._exit(0)


def silent(job_path: str, rank: int) -> NoReturn:
    """Leave with 0 before the final record."""
    Spool(job_path, rank).begin()
    os._exit(0)


def tells_surroundings(job_path: str, rank: int) -> NoReturn:
    """Write down what it finds itself in, then deliver."""
    spool = Spool(job_path, rank)
    found = {
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "sid": os.getsid(0),
        "pid": os.getpid(),
        "fds": sorted(map(int, os.listdir("/proc/self/fd"))),
        "frozen": gc.get_freeze_count(),
    }
    with open(f"found{rank}.json", "w") as stream:
        json.dump(found, stream)
    spool.begin()
    spool.deliver()
    os._exit(0)


def killed_by_itself(job_path: str, rank: int) -> NoReturn:
    """Rank 0 dies of SIGKILL, the others wait for it."""
    Spool(job_path, rank).begin()
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _wait()


def waits(job_path: str, rank: int) -> NoReturn:
    """Begin, then wait for ever."""
    spool = Spool(job_path, rank)
    spool.begin()
    spool.iterate(0)
    _wait()


def never_begins(job_path: str, rank: int) -> NoReturn:
    """Wait for ever without a record."""
    _wait()


def ignores_term(job_path: str, rank: int) -> NoReturn:
    """Wait for ever and ignore TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Spool(job_path, rank).begin()
    _wait()


def leaves_a_grandchild(job_path: str, rank: int) -> NoReturn:
    """Start a child that starts a grandchild which hides: own session, other folder, no environment."""
    spool = Spool(job_path, rank)
    spool.begin()
    _hide()
    spool.deliver()
    os._exit(0)


def dies_with_grandchild(job_path: str, rank: int) -> NoReturn:
    """The same, but the rank is killed before it delivers."""
    Spool(job_path, rank).begin()
    _hide()
    os.kill(os.getpid(), signal.SIGKILL)
    _wait()


def hides_and_waits(job_path: str, rank: int) -> NoReturn:
    """The same, and the rank waits."""
    Spool(job_path, rank).begin()
    _hide(inside=True)
    _wait()


def fills_shared_memory(job_path: str, rank: int) -> NoReturn:
    """Leave what torch, DeepSpeed and NCCL name, its children's too, and a data set; then wait."""
    spool = Spool(job_path, rank)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _wait()
    obedient = os.fork()
    if obedient == 0:
        _wait()
    names = [
        f"torch_{os.getpid()}_{spool.job['port']}_0",
        f"torch_{child}_{spool.job['port']}_0",
        f"torch_{obedient}_{spool.job['port']}_0",
        f"deepspeed_allreduce_buffer_0_127.0.0.1_{spool.job['port']}_{rank}",
        f"nccl-{spool.job['attempt_uid'][:6]}",
        f"dataset-{spool.job['attempt_uid'][:6]}",
    ]
    for name in names:
        with open(f"/dev/shm/{name}", "wb") as stream:
            stream.write(bytes(4096))
    held = []
    for name in names[-2:]:
        with open(f"/dev/shm/{name}", "r+b") as stream:
            held.append(mmap.mmap(stream.fileno(), 0))
    with open("names.json", "w") as listing:
        json.dump(names, listing)
    spool.begin()
    _wait()


def _hide(inside: bool = False) -> None:
    code = (
        "import os,signal,time,sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.setsid() if os.getsid(0) != os.getpid() else None\n"
        "open('grandchild','w').write(str(os.getpid()))\n"
        + ("" if inside else "os.chdir('/')\n")
        + "os.rename(sys.argv[1] + '/grandchild', sys.argv[1] + '/grandchild.pid')\n"
        "time.sleep(600)\n"
    )
    middle = (
        "import subprocess,sys\n"
        f"subprocess.Popen([sys.executable,'-c',{code!r},sys.argv[1]],start_new_session=True,env={{}})\n"
    )
    subprocess.run([sys.executable, "-c", middle, os.getcwd()], check=True)
    while not os.path.exists("grandchild.pid"):
        time.sleep(0.002)


def loud(job_path: str, rank: int) -> NoReturn:
    """50 MB without a newline, no valid UTF-8, then success."""
    spool = Spool(job_path, rank)
    spool.begin()
    block = b"\xff\xfe" * (1 << 19)
    for _ in range(50):
        view = memoryview(block)
        while view:
            view = view[os.write(1, view) :]
    os.write(1, b"the end")
    spool.deliver()
    os._exit(0)


def binds(job_path: str, rank: int) -> NoReturn:
    """Listen on the job's port as a rendezvous does, then deliver; address in use is told as it comes."""
    import socket

    spool = Spool(job_path, rank)
    spool.begin()
    try:
        listener = socket.create_server(("0.0.0.0", spool.job["port"]))
    except OSError as error:
        spool.write("error", status="failed", failure_kind="exception", message=str(error), traceback="")
        os._exit(1)
    while not os.path.exists(f"{spool.job['run_dir']}/go"):
        time.sleep(0.002)
    listener.close()
    spool.deliver()
    os._exit(0)


def raises(job_path: str, rank: int) -> NoReturn:
    """Fail as Python programs do."""
    raise ValueError("no such thing as a free lunch")


def changes_states(job_path: str, rank: int) -> NoReturn:
    """Deliver, but a state came back changed."""
    spool = Spool(job_path, rank)
    spool.begin()
    spool.iterate(0, states_intact=rank != 1)
    spool.deliver()
    os._exit(0)


def waits_for_go(job_path: str, rank: int) -> NoReturn:
    """Be in the timed section until a file says go, then deliver."""
    spool = Spool(job_path, rank)
    spool.begin()
    while not os.path.exists("go"):
        time.sleep(0.002)
    spool.deliver()
    os._exit(0)


def delivers_and_hangs(job_path: str, rank: int) -> NoReturn:
    """Deliver, then hang in teardown, deaf to TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    spool = Spool(job_path, rank)
    spool.begin()
    spool.deliver()
    _wait()


def beside_a_neighbour(job_path: str, rank: int) -> NoReturn:
    """Measured: deliver. Neighbour: begin and go on until told to stop."""
    spool = Spool(job_path, rank)
    spool.begin()
    if spool.job["role"] == "neighbour":
        while not os.path.exists("stop"):
            time.sleep(0.002)
        with open("stopped", "w"):
            pass
    spool.deliver()
    os._exit(0)


def _wait() -> NoReturn:
    while True:
        time.sleep(60)
