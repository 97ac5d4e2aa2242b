"""State shared by every orch of one user on one host: lock files only.

The kernel frees a ``flock`` with its holder, so nothing here can be stale after a crash.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType

from orchestrator.errors import OrchError

STATE_VARIABLE = "ORCH_STATE_DIR"


def state_dir() -> Path:
    """``$ORCH_STATE_DIR``, else ``/tmp/orch-<uid>``; made with mode 0700.

    Raises:
        OrchError: it cannot be made or written.
    """
    given = os.environ.get(STATE_VARIABLE)
    path = Path(given) if given else Path("/tmp") / f"orch-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = "" if os.access(path, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as error:
        why = str(error.strerror)
    if why:
        what = f"the folder of this host's locks cannot be used ({why})"
        raise OrchError(what, str(path), f"set {STATE_VARIABLE} to a folder that you can write")
    return path


class FileLock:
    """A named lock of this host. Not held until ``try_acquire`` says so; never blocks."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self._path = (folder or state_dir()) / f"{name}.lock"
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True if it is held now."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back; harmless if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class TimedSection:
    """The host's timed section, fair between several supervisors.

    Who wants it holds "next in line" while it waits, so one that has just released the section cannot
    take it again ahead of another that waits.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._section = FileLock("timed-section", folder)
        self._next_in_line = FileLock("timed-section-next", folder)

    @property
    def held(self) -> bool:
        """Whether this object holds the section."""
        return self._section.held

    def try_acquire(self) -> bool:
        """Take the section if it is this one's turn; call again until True."""
        if self._section.held:
            return True
        if not self._next_in_line.try_acquire():
            return False
        if not self._section.try_acquire():
            return False
        self._next_in_line.release()
        return True

    def release(self) -> None:
        """Give back the section and the place in line."""
        self._section.release()
        self._next_in_line.release()
