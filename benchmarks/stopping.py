"""Ends a benchmark in order when it is told to: what it runs is ended, what it found is still saved.

A GPU host is often lent for minutes and its commands are stopped by a limit, which is a SIGTERM first.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

import psutil

from orchestrator.launch.processes import become_subreaper

GRACE_S = 30.0
"""From TERM to KILL of a command; orch gives its jobs ten seconds of their own."""
LOOK_S = 0.25
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Stop:
    """Notices SIGINT and SIGTERM while its context lasts, and ends the command that runs then."""

    def __init__(self) -> None:
        self._signalled = threading.Event()
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether a signal has come; no further command is started."""
        return self._signalled.is_set()

    def __enter__(self) -> Stop:
        become_subreaper()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled.set()

    def orch(self, command: Sequence[str], log: IO[bytes], timeout_s: float = 3600) -> int | None:
        """Run an ``orch`` command; its exit status, None if it was stopped.

        It has a session of its own: whoever signals this process' group would otherwise reach it twice,
        and orch takes the second signal as an order to kill its jobs at once.
        """
        return self._run(command, log, None, timeout_s, own_session=True)

    def tree(self, command: Sequence[str], log: IO[bytes], folder: Path, timeout_s: float) -> int | None:
        """Run a command that may leave its children behind, as ``deepspeed`` does; as ``orch`` otherwise.

        Whoever kills this process' group ends it too.
        """
        return self._run(command, log, folder, timeout_s, own_session=False)

    def _run(
        self, command: Sequence[str], log: IO[bytes], folder: Path | None, timeout_s: float, own_session: bool
    ) -> int | None:
        """Raises:
        TimeoutExpired: it ran longer than ``timeout_s``, and is gone now.
        """
        if self._signalled.is_set():
            return None
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=own_session, preexec_fn=_end_with_parent,
        )  # fmt: skip
        until = time.monotonic() + timeout_s
        try:
            while process.poll() is None and not self._signalled.is_set() and time.monotonic() < until:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S)
            if process.poll() is None:
                for one in [process] if own_session else _descendants():
                    _signal(one, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()
            if not own_session:
                _end_orphans()
        if not self._signalled.is_set() and time.monotonic() >= until:
            raise subprocess.TimeoutExpired(command, timeout_s)
        return None if self._signalled.is_set() else process.returncode


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _descendants() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def _end_orphans() -> None:
    """What a command left behind has become a child of this process, which is their subreaper."""
    while orphans := _descendants():
        for orphan in orphans:
            _signal(orphan, signal.SIGKILL)
        psutil.wait_procs(orphans, timeout=GRACE_S)


def _signal(process: subprocess.Popen[bytes] | psutil.Process, number: int) -> None:
    # Neither kind signals a number that belongs to somebody else by now.
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def write_whole(path: Path, text: str) -> None:
    """Put ``text`` in the place of the file in one step: a reader finds the old one or the new one."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
