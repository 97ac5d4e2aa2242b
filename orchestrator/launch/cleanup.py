"""What a dead supervisor has left on this host: found and ended by the next orch.

Found by the run directories under the runs root (as working directory, as ``ORCH_ATTEMPT``), by the
supervisor that all its processes were started with (``ORCH_SUPERVISOR``), and by the sessions of what is
found.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.launch.hoststate import STATE_VARIABLE
from orchestrator.launch.paths import OWNER_FILE
from orchestrator.launch.processes import (
    SUPERVISOR_VARIABLE,
    all_pids,
    ancestors_of_self,
    descendants,
    environment_value,
    is_inside,
    is_running,
    is_visible_alike,
    owner_is_alive,
    signal_process,
    stat_of,
    working_directory,
)
from orchestrator.launch.sharedmemory import remove_shared_memory, used_by
from orchestrator.spec.jobfile import load_job

_GRACE_S = 1.0
_LIMIT_S = 10.0


def survivors(run_dirs: Sequence[Path], attempt_uids: Iterable[str] = ()) -> set[int]:
    """Processes of attempts whose supervisor is gone, and of every other supervisor that is gone."""
    folders = [str(folder) for folder in run_dirs]
    uids = set(attempt_uids)
    uids.update(folder.name for folder in run_dirs)
    own = ancestors_of_self()
    owners = set()
    for folder in run_dirs:
        with contextlib.suppress(OSError):
            owners.add((folder / OWNER_FILE).read_text())
    alive: dict[str, bool] = {}
    found = set()
    for pid in all_pids():
        if pid not in own and (_is_of(pid, folders, uids) or _is_orphan(pid, owners, alive)):
            found.add(pid)
    sessions = {stat.session for pid in found if (stat := stat_of(pid)) is not None}
    sessions -= {stat.session for pid in own if (stat := stat_of(pid)) is not None}
    found |= {pid for pid in all_pids() if (stat := stat_of(pid)) is not None and stat.session in sessions}
    return {pid for pid in descendants(found) if pid not in own and is_running(pid)}


def _is_of(pid: int, folders: Sequence[str], uids: set[str]) -> bool:
    """Whether the process is part of one of these attempts."""
    where = working_directory(pid)
    if any(is_inside(where, folder) for folder in folders):
        # A rank and what it starts have no terminal: a shell in the folder is a person who looks at logs.
        stat = stat_of(pid)
        if stat is not None and not stat.has_terminal:
            return True
    return bool(uids) and environment_value(pid, "ORCH_ATTEMPT") in uids


def _is_orphan(pid: int, owners: set[str], alive: dict[str, bool]) -> bool:
    """Whether a supervisor of the same host state, or one of ``owners``, answered for it and is gone.

    ``alive`` remembers who lives.
    """
    owner = environment_value(pid, SUPERVISOR_VARIABLE)
    if not owner:
        return False
    is_ours = environment_value(pid, STATE_VARIABLE) == os.environ.get(STATE_VARIABLE)
    if not is_ours and owner not in owners:
        return False
    if owner not in alive:
        alive[owner] = owner_is_alive(owner)
    # Seen from another container's processes, this one's supervisor may seem to be gone.
    return not alive[owner] and is_visible_alike(pid)


def sweep(runs_root: Path, run_dirs: Sequence[Path] = ()) -> list[int]:
    """End the survivors of dead supervisors and remove what was theirs; the pids that were ended.

    Args:
        runs_root: its attempts whose supervisor, as recorded in their folder, is dead are swept.
        run_dirs: run directories of further attempts that are known to be nobody's.
    """
    return end_survivors([*run_dirs, *(folder for folder in abandoned(runs_root) if folder not in run_dirs)])


def end_survivors(folders: Sequence[Path] = ()) -> list[int]:
    """The same for these run directories, and for whatever supervisor of this host is dead."""
    ended: set[int] = set()
    used: set[Path] = set()
    deadline = time.monotonic() + _LIMIT_S
    kill_after = time.monotonic() + _GRACE_S
    number = signal.SIGTERM
    while alive := survivors(folders):
        if time.monotonic() > kill_after:
            number = signal.SIGKILL
        used |= used_by(alive - ended)
        for pid in alive:
            if number == signal.SIGKILL or pid not in ended:
                signal_process(pid, number)
        ended |= alive
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if folders or ended:
        remove_shared_memory(ended | _ranks_of(folders), _ports_of(folders), used)
    if not alive:
        for folder in folders:
            with contextlib.suppress(OSError):
                (folder / OWNER_FILE).unlink()
    return sorted(ended)


def abandoned(runs_root: Path) -> list[Path]:
    """Run directories whose supervisor died before it could clean up."""
    found = []
    for record in runs_root.glob(f"*/*/{OWNER_FILE}"):
        with contextlib.suppress(OSError):
            owner = record.read_text()
            # An empty one is being written this moment: nothing has been started there yet.
            if owner and not owner_is_alive(owner):
                found.append(record.parent)
    return found


def _groups(folders: Iterable[Path]) -> Iterable[Path]:
    for folder in folders:
        yield folder
        yield from folder.glob("neighbour*")


def _ports_of(folders: Iterable[Path]) -> set[int]:
    """The ports that the attempts of these run directories had leased."""
    ports = set()
    for folder in _groups(folders):
        with contextlib.suppress(OSError, ValueError, KeyError):
            ports.add(load_job(folder / "job.json").port)
    return ports


def _ranks_of(folders: Iterable[Path]) -> set[int]:
    """The processes that had been ranks there, by their own first records."""
    pids = set()
    for folder in _groups(folders):
        for spool in folder.glob("spool/rank*.jsonl"):
            with (
                contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError),
                spool.open("rb") as stream,
            ):
                pids.add(int(json.loads(stream.readline(1 << 16))["pid"]))
    return pids
