"""What a dead supervisor has left on this host: found and ended by the next orch.

Found by the run directories under the runs root: as working directory, as ``ORCH_ATTEMPT``, and by the
sessions of what is found.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.launch.paths import OWNER_FILE
from orchestrator.launch.processes import (
    all_pids,
    descendants,
    environment_value,
    is_inside,
    owner_is_alive,
    signal_process,
    stat_of,
    working_directory,
)
from orchestrator.spec.jobfile import load_job

_SHARED_MEMORY = Path("/dev/shm")
_PID_IN_NAME = re.compile(r"^torch_(\d+)_")
_PORT_IN_NAME = re.compile(r"^deepspeed_allreduce_buffer_.*_(\d+)_\d+$")
_GRACE_S = 1.0
_LIMIT_S = 10.0


def survivors(run_dirs: Sequence[Path], attempt_uids: Iterable[str] = ()) -> set[int]:
    """Processes of attempts whose supervisor is gone: by working directory, environment, session, descent."""
    folders = [str(folder) for folder in run_dirs]
    uids = set(attempt_uids)
    uids.update(folder.name for folder in run_dirs)
    own = _ancestors_of_self()
    found = set()
    for pid in all_pids():
        if pid in own:
            continue
        where = working_directory(pid)
        is_there = any(is_inside(where, folder) for folder in folders)
        if is_there or environment_value(pid, "ORCH_ATTEMPT") in uids:
            found.add(pid)
    sessions = {stat.session for pid in found if (stat := stat_of(pid)) is not None}
    sessions -= {stat.session for pid in own if (stat := stat_of(pid)) is not None}
    found |= {pid for pid in all_pids() if (stat := stat_of(pid)) is not None and stat.session in sessions}
    return {pid for pid in descendants(found) if pid not in own and _is_running(pid)}


def _ancestors_of_self() -> set[int]:
    own = set()
    pid = os.getpid()
    while pid > 0 and (stat := stat_of(pid)) is not None:
        own.add(pid)
        pid = stat.parent
    return own


def _is_running(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat.state not in ("Z", "X")


def sweep(runs_root: Path, run_dirs: Sequence[Path] = ()) -> list[int]:
    """End the survivors of dead supervisors; the pids that were ended.

    Args:
        runs_root: its attempts whose folder is named in ``run_dirs`` are swept; with none named, those
            whose supervisor, as recorded in the folder, is dead.
        run_dirs: run directories of attempts that are known to be nobody's.
    """
    folders = list(run_dirs) or abandoned(runs_root)
    if not folders:
        return []
    ended: set[int] = set()
    deadline = time.monotonic() + _LIMIT_S
    kill_after = time.monotonic() + _GRACE_S
    number = signal.SIGTERM
    while alive := survivors(folders):
        if time.monotonic() > kill_after:
            number = signal.SIGKILL
        for pid in alive:
            if number == signal.SIGKILL or pid not in ended:
                signal_process(pid, number)
        ended |= alive
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    remove_shared_memory(ended, _ports_of(folders))
    for folder in folders:
        with contextlib.suppress(OSError):
            (folder / OWNER_FILE).unlink()
    return sorted(ended)


def abandoned(runs_root: Path) -> list[Path]:
    """Run directories whose supervisor died before it could clean up."""
    found = []
    for record in runs_root.glob(f"*/*/{OWNER_FILE}"):
        with contextlib.suppress(OSError):
            if not owner_is_alive(record.read_text()):
                found.append(record.parent)
    return found


def remove_shared_memory(pids: Iterable[int], ports: Iterable[int] = ()) -> list[Path]:
    """Remove what these dead processes have left in ``/dev/shm``; the files removed.

    torch names its files by process, DeepSpeed's CPU op by the rendezvous port, which was leased.
    """
    dead, leased = set(pids), set(ports)
    removed = []
    with contextlib.suppress(OSError):
        for name in os.listdir(_SHARED_MEMORY):
            by_pid, by_port = _PID_IN_NAME.match(name), _PORT_IN_NAME.match(name)
            is_ours = (by_pid and int(by_pid[1]) in dead and not _is_running(int(by_pid[1]))) or (
                by_port and int(by_port[1]) in leased
            )
            if is_ours:
                path = _SHARED_MEMORY / name
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed.append(path)
    return removed


def _ports_of(folders: Iterable[Path]) -> list[int]:
    """The ports that the attempts of these run directories had leased."""
    ports = []
    for folder in folders:
        for path in (folder / "job.json", *folder.glob("neighbour*/job.json")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                ports.append(load_job(path).port)
    return ports
