"""Locks that torch's extension builder leaves behind, and whether anybody still holds them.

torch builds an extension under ``<TORCH_EXTENSIONS_DIR>/<op>/`` and creates ``lock`` there. Whoever finds
the file waits until it is gone, without a message and for ever. The builder keeps the file open, so a
lock that no process has open has lost its owner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.launch.holders import holders_of


@dataclass(frozen=True, slots=True)
class JitLock:
    """A builder's lock.

    Attributes:
        path: the lock file.
        op: the extension being built.
        age_s: seconds since the lock was made, by the file system's clock.
        holder_pid: a process that has it open; None if there is none to be seen.
        is_certain: every process that could hold it was looked at, so no holder means stale.
    """

    path: Path
    op: str
    age_s: float
    holder_pid: int | None
    is_certain: bool

    @property
    def is_stale(self) -> bool:
        """Nobody holds it: a job that needs the op would wait for ever."""
        return self.holder_pid is None and self.is_certain


def extensions_dirs(environ: Mapping[str, str]) -> list[Path]:
    """The folders that hold a folder an op: TORCH_EXTENSIONS_DIR, or torch's default ones."""
    root = extensions_root(environ)
    if environ.get("TORCH_EXTENSIONS_DIR"):
        return [root]
    return sorted(path for path in root.glob("py*") if path.is_dir())


def extensions_root(environ: Mapping[str, str]) -> Path:
    """The folder in which torch builds ops, or makes a folder a Python version to build them in."""
    if environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(environ["TORCH_EXTENSIONS_DIR"])
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache")
    return cache / "torch_extensions"


def find_locks(environ: Mapping[str, str], proc: Path = Path("/proc")) -> list[JitLock]:
    """Every builder's lock of this user's extension folders."""
    paths = [path for folder in extensions_dirs(environ) for path in sorted(folder.glob("*/lock"))]
    if not paths:
        return []
    holders = holders_of(paths, proc)
    return [lock for path in paths if (lock := _look(path, holders.get(path))) is not None]


def clear_stale_locks(environ: Mapping[str, str]) -> list[JitLock]:
    """Remove the locks without an owner, and say which they were."""
    stale = [lock for lock in find_locks(environ) if lock.is_stale]
    for lock in stale:
        lock.path.unlink(missing_ok=True)
    return stale


def _look(path: Path, holder_pid: int | None) -> JitLock | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    # Another user's processes keep their open files to themselves; another host's are not seen at all.
    is_ours = os.geteuid() in (0, status.st_uid)
    return JitLock(
        path, path.parent.name, max(0.0, time.time() - status.st_mtime), holder_pid, is_certain=is_ours
    )
