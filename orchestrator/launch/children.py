"""The processes of this supervisor: the only place that starts and reaps them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.launch.loop import Loop
from orchestrator.launch.processes import SUPERVISOR_VARIABLE, children_of_self
from orchestrator.store.owner import this_owner

if TYPE_CHECKING:
    from orchestrator.launch.spares import Spares

OnExit = Callable[[int | None], None]
"""Gets ``os.waitstatus_to_exitcode`` of the end (negative: a signal), or None if nobody saw it."""


class Children:
    """Every process that this one answers for: those it started, those a fork server forked for it."""

    def __init__(self, loop: Loop, spares: Spares | None = None) -> None:
        self._on_exit: dict[int, OnExit] = {}
        self._popen: dict[int, subprocess.Popen[bytes]] = {}
        self._on_stray: list[Callable[[], None]] = []
        self._loop = loop
        self._spares = spares
        self._mark = {SUPERVISOR_VARIABLE: this_owner()}
        signal.signal(signal.SIGCHLD, lambda _number, _frame: loop.post(self.reap))

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        output: int | None,
        on_exit: OnExit,
        pass_descriptors: Sequence[int] = (),
    ) -> int:
        """Start a command in a session of its own; its output goes to a descriptor. OSError as usual.

        It and all below it can be told by ``ORCH_SUPERVISOR``: a process that a forked rank has forked
        shows the environment of the fork server, wherever it goes.
        """
        process = subprocess.Popen(
            command,
            env={**environment, **self._mark},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=pass_descriptors,
        )
        self._popen[process.pid] = process
        self._on_exit[process.pid] = on_exit
        return process.pid

    def spawn_rank(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        output: int,
        on_exit: OnExit,
    ) -> int:
        """As ``spawn``, by a spare process where there is one."""
        if self._spares is not None:
            pid = self._spares.become(command, {**environment, **self._mark}, folder, output)
            if pid is not None:
                self._on_exit[pid] = on_exit
                return pid
        return self.spawn(command, environment=environment, folder=folder, output=output, on_exit=on_exit)

    def adopt(self, pid: int, on_exit: OnExit) -> None:
        """Answer for a process that a fork server has forked."""
        self._on_exit[pid] = on_exit

    def ended(self, pid: int, code: int | None) -> None:
        """A fork server says how its child ended."""
        on_exit = self._on_exit.pop(pid, None)
        if on_exit is not None:
            on_exit(code)

    def strays(self) -> list[int]:
        """Orphans that became this process's children: what the ranks have left behind."""
        return [pid for pid in children_of_self() if pid not in self._on_exit]

    def on_stray_reaped(self, callback: Callable[[], None]) -> None:
        """Call back once, when the next stray has been reaped."""
        self._on_stray.append(callback)

    def reap(self) -> None:
        """Take in every child that has ended."""
        ended: list[tuple[bool, int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended.append((pid not in self._popen, pid, os.waitstatus_to_exitcode(status)))
        # Those started here first: a dead fork server explains the deaths of its ranks.
        for _, pid, code in sorted(ended):
            process = self._popen.pop(pid, None)
            if process is not None:
                # Popen must not wait for a pid that is reaped and may be another's soon.
                process.returncode = code
            if pid in self._on_exit:
                self.ended(pid, code)
            else:
                callbacks, self._on_stray = self._on_stray, []
                for callback in callbacks:
                    callback()
