"""The fork servers of this supervisor: one per worker and import environment."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orchestrator.launch.children import Children
from orchestrator.launch.environment import inherited, server_environment
from orchestrator.launch.loop import Loop
from orchestrator.launch.processes import signal_process, stat_of

_MOST_IDLE_SERVERS = 3
_READY_TIMEOUT_S = 900.0
"""Building the ops is part of getting ready: about two minutes on two cores."""
_MOST_STARTS_IN_A_ROW = 2
_MOST_REPLACEMENTS = 5
"""Of servers that a learned module made unsafe: each successor leaves one more module out."""


class ForkUser(Protocol):
    """A group of ranks that a server forks."""

    def forked(self, rank: int, pid: int) -> None:
        """One rank exists."""

    def refused(self, reason: str) -> None:
        """No rank was forked: it would not be safe, or the server is gone."""

    def server_died(self) -> None:
        """The server is gone, and the ranks it had forked with it."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Ranks to be forked; ``outputs`` are their standard output, one a rank, and stay the caller's."""

    job_file: Path
    folder: Path
    variables: Mapping[str, str]
    unset: Sequence[str]
    ranks: Sequence[tuple[int, Mapping[str, str]]]
    outputs: Sequence[int]


@dataclass
class _Pending:
    user: ForkUser
    ranks_left: int
    pids: set[int] = field(default_factory=set)


class ForkServer:
    """One server process: starting, ready, or gone."""

    def __init__(
        self,
        loop: Loop,
        children: Children,
        *,
        worker: str,
        accelerator: str,
        variables: Mapping[str, str],
        cache_folder: Path,
        notice: Callable[[str], None],
        on_gone: Callable[[ForkServer], None],
        on_spoiled: Callable[[ForkServer], None],
    ) -> None:
        self.is_ready = False
        self.is_retired = False
        self.is_gone = False
        self.was_ready = False
        self.unsafe: str | None = None
        self.last_used = time.monotonic()
        self._loop = loop
        self._children = children
        self._notice = notice
        self._on_gone = on_gone
        self._on_spoiled = on_spoiled
        self._waiters: list[Callable[[], None]] = []
        self._groups: dict[int, _Pending] = {}
        self._next_group = 0
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            "-P",
            "-m",
            "worker.server",
            "--control",
            str(theirs.fileno()),
            "--parent",
            str(os.getpid()),
            "--worker",
            worker,
            "--accelerator",
            accelerator,
            "--cache",
            str(cache_folder),
        ]
        try:
            self.pid = children.spawn(
                command,
                environment={**inherited(), **variables},
                folder="/",
                output=None,
                on_exit=self._exited,
                pass_descriptors=(theirs.fileno(),),
            )
        finally:
            theirs.close()
        self._control.setblocking(False)
        loop.watch(self._control.fileno(), self._read)
        self._deadline = loop.call_later(_READY_TIMEOUT_S, self._not_ready_in_time)

    @property
    def is_idle(self) -> bool:
        """Whether none of its ranks is alive and nobody waits for it."""
        return not self._groups and not self._waiters

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once the server is ready or gone."""
        if self.is_ready or self.is_gone:
            self._loop.call_soon(callback)
        else:
            self._waiters.append(callback)

    def fork(self, request: ForkRequest, user: ForkUser) -> None:
        """Fork the ranks; the user hears of each, or of a refusal."""
        self.last_used = time.monotonic()
        group = self._next_group
        self._next_group += 1
        self._groups[group] = _Pending(user, len(request.ranks))
        message = {
            "group": group,
            "server": self.pid,
            "job": str(request.job_file),
            "folder": str(request.folder),
            "variables": dict(request.variables),
            "unset": list(request.unset),
            "ranks": [[rank, dict(variables)] for rank, variables in request.ranks],
        }
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(request.outputs))
        except OSError as error:
            del self._groups[group]
            reason = f"the fork server does not listen: {error}"
            self._loop.call_soon(lambda: user.refused(reason))

    def kill(self) -> None:
        """End the server at once; its ranks go with it."""
        signal_process(self.pid, 9)

    def close(self) -> None:
        """Let the server end: it sees the end of its control socket."""
        self._close_control()

    def retire(self) -> None:
        """Let the server end with its last rank."""
        self.is_retired = True
        if self.is_idle:
            self.close()

    def _read(self) -> None:
        while True:
            try:
                data = self._control.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                # The server's end is closed: its exit is reported by the kernel.
                self._close_control()
                return
            self._take(json.loads(data))
            if self._control.fileno() < 0:
                return

    def _take(self, message: Mapping[str, Any]) -> None:
        match message["op"]:
            case "ready":
                self.unsafe = message["unsafe"]
                self.is_ready = self.was_ready = True
                self._deadline.cancel()
                self._wake()
            case "forked":
                pending = self._groups[message["group"]]
                pid = message["pid"]
                pending.pids.add(pid)
                pending.user.forked(message["rank"], pid)
            case "refused":
                self._groups.pop(message["group"]).user.refused(message["reason"])
            case "exited":
                for group, pending in self._groups.items():
                    if message["pid"] in pending.pids:
                        pending.pids.discard(message["pid"])
                        pending.ranks_left -= 1
                        if not pending.ranks_left:
                            del self._groups[group]
                        break
                self._children.ended(message["pid"], message["code"])
                if self.is_retired and self.is_idle:
                    self.close()
            case "building":
                self._notice("DeepSpeed's ops are being built for this host, about a minute, once")
            case "spoiled":
                self._notice(message["text"])
                self._on_spoiled(self)

    def _exited(self, _code: int | None) -> None:
        # What it said before it died is still in the socket.
        if self._control.fileno() >= 0:
            self._read()
        self._close_control()
        self._deadline.cancel()
        self.is_gone, self.is_ready = True, False
        self._on_gone(self)
        self._wake()
        groups, self._groups = self._groups, {}
        for pending in groups.values():
            pending.user.server_died()
            for pid in pending.pids:
                self._await_orphan(pid)

    def _await_orphan(self, pid: int) -> None:
        """A rank of a dead server: it is ours to reap now, unless the server had reaped it unheard."""
        stat = stat_of(pid)
        if stat is None or (stat.state == "Z" and stat.parent != os.getpid()):
            self._children.ended(pid, None)
        else:
            self._loop.call_later(0.05, lambda: self._await_orphan(pid))

    def _not_ready_in_time(self) -> None:
        self._notice(f"the fork server was not ready within {_READY_TIMEOUT_S:.0f} s")
        self.kill()

    def _close_control(self) -> None:
        if self._control.fileno() >= 0:
            self._loop.unwatch(self._control.fileno())
            self._control.close()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()


def module_cache_folder() -> Path:
    """Where servers keep the list of modules that ranks turned out to need."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orch"


class ForkServers:
    """All fork servers; a dead one is replaced when it is next asked for."""

    def __init__(self, loop: Loop, children: Children, notice: Callable[[str], None]) -> None:
        self._loop = loop
        self._children = children
        self._notice = notice
        self._servers: dict[tuple[object, ...], ForkServer] = {}
        self._failed_starts: dict[tuple[object, ...], int] = {}
        self._replacements: dict[tuple[object, ...], int] = {}
        self._closing = False

    @property
    def pids(self) -> list[int]:
        """The processes of the servers."""
        return [server.pid for server in self._servers.values()]

    def get(self, worker: str, accelerator: str, cell_env: Mapping[str, str]) -> ForkServer | None:
        """The server for such a cell, started if need be; None if it could not be started repeatedly."""
        variables = server_environment(accelerator, cell_env)
        key = (worker, accelerator, *sorted(variables.items()))
        server = self._servers.get(key)
        if server is not None:
            return server
        if self._failed_starts.get(key, 0) >= _MOST_STARTS_IN_A_ROW:
            return None

        def gone(server: ForkServer) -> None:
            if self._servers.get(key) is not server:
                return
            del self._servers[key]
            self._failed_starts[key] = 0 if server.was_ready else self._failed_starts.get(key, 0) + 1
            if not self._closing and server.was_ready:
                self._notice("the fork server died; a new one is started")

        def spoiled(server: ForkServer) -> None:
            self._replacements[key] = self._replacements.get(key, 0) + 1
            if self._servers.get(key) is server and self._replacements[key] <= _MOST_REPLACEMENTS:
                del self._servers[key]
                server.retire()

        server = ForkServer(
            self._loop,
            self._children,
            worker=worker,
            accelerator=accelerator,
            variables=variables,
            cache_folder=module_cache_folder(),
            notice=self._notice,
            on_gone=gone,
            on_spoiled=spoiled,
        )
        self._servers[key] = server
        self._stop_idle(but=server)
        return server

    def close(self) -> None:
        """Let every server end."""
        self._closing = True
        for server in list(self._servers.values()):
            server.close()

    def kill(self) -> None:
        """End every server at once."""
        self._closing = True
        for server in list(self._servers.values()):
            server.kill()

    def _stop_idle(self, but: ForkServer) -> None:
        idle = [s for s in self._servers.values() if s is not but and s.is_ready and s.is_idle]
        idle.sort(key=lambda server: server.last_used)
        for server in idle[: max(0, len(idle) - _MOST_IDLE_SERVERS + 1)]:
            for key, known in list(self._servers.items()):
                if known is server:
                    del self._servers[key]
            server.close()
