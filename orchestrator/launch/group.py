"""A group of ranks that form one process group: started, followed and ended together.

An attempt has one measured group, and with contention further ones that are its neighbours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Protocol

from orchestrator.launch import commands
from orchestrator.launch.children import Children
from orchestrator.launch.environment import (
    inherited,
    job_environment,
    rank_variables,
    visible_devices,
)
from orchestrator.launch.logs import CappedLog, drain
from orchestrator.launch.loop import Loop
from orchestrator.launch.order import Launcher, LaunchOrder, RankPlacement
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.ports import PortLease, lease_port
from orchestrator.launch.processes import descendants, signal_group, signal_process
from orchestrator.launch.servers import ForkRequest, ForkServer
from orchestrator.launch.spool import SpoolTail
from orchestrator.spec.jobfile import JobFile, Role


class Output:
    """What one process and its children print, on its way into a capped log."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self.log = CappedLog(path)
        self._loop = loop
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_end, False)
        loop.watch(self._read_end, self._drain)

    def close_write_end(self) -> None:
        """Only the processes hold it from now on."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Take what is left and close; harmless twice."""
        self.close_write_end()
        if self._read_end >= 0:
            drain(self._read_end, self.log, limit_bytes=64 << 20)
            self._end()
        self.log.close()

    def last_line(self) -> str:
        """The last line that is not blank, for a message."""
        lines = self.log.last_bytes.decode(errors="replace").splitlines()
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def _drain(self) -> None:
        if not drain(self._read_end, self.log):
            self._end()

    def _end(self) -> None:
        self._loop.unwatch(self._read_end)
        os.close(self._read_end)
        self._read_end = -1


class RankState:
    """One rank: where it runs, whether it lives, how it ended."""

    def __init__(self, placement: RankPlacement, tail: SpoolTail) -> None:
        self.placement = placement
        self.tail = tail
        self.output: Output | None = None
        self.pid: int | None = None
        self.ended = False
        self.exit_status: int | None = None
        self.signal: int | None = None
        """The signal that ended it, unless it was ours."""


class GroupWatcher(Protocol):
    """Who is told about a group."""

    def rank_forked(self, group: RankGroup) -> None:
        """The fork server has forked another rank."""

    def rank_ended(self, _group: RankGroup, _state: RankState) -> None:
        """A rank's process has ended (its records have been read)."""

    def group_refused(self, group: RankGroup, reason: str) -> None:
        """The fork server would not fork."""

    def group_lost_its_server(self, _group: RankGroup) -> None:
        """The fork server died with the ranks."""


class RankGroup:
    """The ranks of one group on this node."""

    def __init__(
        self,
        loop: Loop,
        children: Children,
        order: LaunchOrder,
        ranks: tuple[RankPlacement, ...],
        paths: AttemptPaths,
        role: Role,
        watcher: GroupWatcher,
    ) -> None:
        self.order = order
        self.paths = paths
        self.role = role
        self.placements = ranks
        self.mode: Launcher = order.launcher
        self.port = order.port or 0
        self.launched_at: float | None = None
        self.launcher_exit_status: int | None = None
        self.launcher_signal: int | None = None
        self.launcher_output: Output | None = None
        self.ending = False
        self.states: dict[int, RankState] = {}
        self.sessions: set[int] = set()
        """Session leaders started for this group, dead ones too: a session outlives its leader."""
        self._loop = loop
        self._children = children
        self._watcher = watcher
        self._lease: PortLease | None = None
        self._launcher_pid: int | None = None
        for placement in ranks:
            self._place(placement)

    # -- starting ----------------------------------------------------------------------------------

    def prepare(self, mode: Launcher) -> None:
        """Make the folders, lease the port and write the job file; OSError, EngineError."""
        self.mode = mode
        if mode == "deepspeed":
            self.placements = commands.deepspeed_order(self.placements)
            for placement in self.placements:
                self._place(placement)
        if self.role == "neighbour":
            os.makedirs(self.paths.spool_dir, exist_ok=True)
        if self.order.port is None or self.role == "neighbour":
            self._lease = lease_port()
            self.port = self._lease.port
        order = self.order
        JobFile(
            attempt_uid=order.attempt_uid,
            attempt_id=order.attempt_id,
            job_id=order.job_id,
            sweep=order.sweep,
            parameters=order.parameters,
            ds=order.ds,
            env=order.env,
            world_size=order.world_size,
            num_nodes=order.num_nodes,
            node_rank=order.node_rank,
            local_size=len(self.placements),
            master_addr=order.master_addr,
            port=self.port,
            accelerator=order.accelerator,
            launch_mode=mode,
            commit=mode != "fork" and self.role == "measured" and order.db_url is not None,
            db_url=order.db_url,
            run_dir=str(self.paths.run_dir),
            spool_dir=str(self.paths.spool_dir),
            start_timeout_s=order.start_timeout_s,
            ranks=self.placements,
            visible_devices=visible_devices(self.placements, order.accelerator),
            role=self.role,
        ).write(self.job_file)

    def prepare_again(self, mode: Launcher) -> None:
        """The same ranks in another mode; nothing of the first one was started."""
        for state in self.states.values():
            if state.output is not None:
                state.output.close()
        self._release_port()
        self.prepare(mode)

    @property
    def job_file(self) -> Path:
        """What the ranks of this node are told."""
        return self.paths.node_job_file(self.order.node_rank)

    def launch(self, server: ForkServer | None) -> None:
        """Start the ranks; OSError if that cannot be done. ``server`` is for mode ``fork``."""
        self.launched_at = time.monotonic()
        try:
            self._launch(server)
        except BaseException:
            for state in self.states.values():
                state.ended = state.pid is None or state.ended
            raise

    def _launch(self, server: ForkServer | None) -> None:
        variables = job_environment(self.order, self.placements, self.port)
        if self.mode == "deepspeed":
            self._launch_deepspeed(variables)
            return
        for state in self.states.values():
            state.output = Output(self._loop, self.paths.log(state.placement.rank))
        if self.mode == "fork":
            assert server is not None
            self._fork(server, variables)
        else:
            self._spawn(variables)
        for state in self.states.values():
            assert state.output is not None
            state.output.close_write_end()

    def _place(self, placement: RankPlacement) -> None:
        tail = SpoolTail(self.paths.spool(placement.rank), placement.rank)
        self.states[placement.rank] = RankState(placement, tail)

    def _fork(self, server: ForkServer, variables: dict[str, str]) -> None:
        states = list(self.states.values())
        unset = [name for name in ("PYTORCH_CUDA_ALLOC_CONF", "LOCAL_SIZE") if name not in variables]
        server.fork(
            ForkRequest(
                job_file=self.job_file,
                folder=self.paths.run_dir,
                variables=variables,
                unset=unset,
                ranks=[(s.placement.rank, rank_variables(s.placement)) for s in states],
                outputs=[s.output.write_end for s in states if s.output is not None],
            ),
            self,
        )

    def _spawn(self, variables: dict[str, str]) -> None:
        base = {**inherited(), **variables}
        for state in self.states.values():
            assert state.output is not None
            rank = state.placement.rank
            pid = self._children.spawn_rank(
                commands.spawn_command(self.order.worker, self.job_file, rank),
                environment={**base, **rank_variables(state.placement)},
                folder=str(self.paths.run_dir),
                output=state.output.write_end,
                on_exit=lambda code, state=state: self._rank_ended(state, code),  # type: ignore[misc]
            )
            state.pid = pid
            self.sessions.add(pid)

    def _launch_deepspeed(self, variables: dict[str, str]) -> None:
        environment = {**inherited(), **variables}
        # The command reads it as indices and sets it itself, from --include.
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        self.launcher_output = Output(self._loop, self.paths.launcher_log)
        self._launcher_pid = self._children.spawn(
            commands.deepspeed_command(self.order, self.placements, self.port, self.job_file),
            environment=environment,
            folder=str(self.paths.run_dir),
            output=self.launcher_output.write_end,
            on_exit=self._launcher_ended,
        )
        self.sessions.add(self._launcher_pid)
        self.launcher_output.close_write_end()

    # -- what the fork server says -----------------------------------------------------------------

    def forked(self, rank: int, pid: int) -> None:
        """One rank exists."""
        state = self.states[rank]
        state.pid = pid
        self.sessions.add(pid)
        self._children.adopt(pid, lambda code: self._rank_ended(state, code))
        if self.ending:
            signal_group(pid, signal.SIGKILL)
            signal_process(pid, signal.SIGKILL)
        self._watcher.rank_forked(self)

    def refused(self, reason: str) -> None:
        """No rank was forked."""
        self._watcher.group_refused(self, reason)

    def server_died(self) -> None:
        """The ranks went with their server; those not forked yet never will be."""
        for state in self.states.values():
            if state.pid is None:
                state.ended = True
        self._watcher.group_lost_its_server(self)

    # -- following ---------------------------------------------------------------------------------

    def read_spool(self) -> bool:
        """Take in new records; True if there were any."""
        news = [state.tail.read() for state in self.states.values()]
        return any(news)

    @property
    def alive(self) -> bool:
        """Whether a process of the group that this supervisor knows is left."""
        if self.mode == "deepspeed":
            return self._launcher_pid is not None
        return self.launched_at is not None and any(not state.ended for state in self.states.values())

    @property
    def delivered(self) -> bool:
        """Whether every rank has written its final record."""
        return all(state.tail.final for state in self.states.values())

    @property
    def terminated(self) -> bool:
        """Whether somebody else has sent TERM to a rank, which died of it."""
        return any(state.signal == signal.SIGTERM for state in self.states.values())

    @property
    def timing(self) -> bool:
        """Whether a rank may still be at, or before, a timed operation."""
        return any(
            not state.ended and not state.tail.final and state.tail.timed_to_at is None
            for state in self.states.values()
        )

    @property
    def ready(self) -> bool:
        """Whether every rank has begun its first timed operation."""
        return all(state.tail.timed_from_at is not None or state.tail.final for state in self.states.values())

    @property
    def iterations(self) -> int:
        """Iterations that every rank has recorded."""
        return min((state.tail.iterations for state in self.states.values()), default=0)

    def _rank_ended(self, state: RankState, code: int | None) -> None:
        state.tail.read()
        state.ended = True
        if code is not None and code < 0:
            if not self.ending:
                state.signal = -code
        else:
            state.exit_status = code
        # An emptied session's number may be somebody else's before long.
        if state.pid is not None and not signal_group(state.pid, 0):
            self.sessions.discard(state.pid)
        self._watcher.rank_ended(self, state)

    def _launcher_ended(self, code: int | None) -> None:
        self._launcher_pid = None
        self.read_spool()
        if code is not None and code < 0:
            if not self.ending:
                self.launcher_signal = -code
        else:
            self.launcher_exit_status = code
        for state in self.states.values():
            state.ended = True
        self._watcher.rank_ended(self, next(iter(self.states.values())))

    # -- ending ------------------------------------------------------------------------------------

    def leaders(self) -> list[int]:
        """The living session leaders of this group."""
        found = [state.pid for state in self.states.values() if state.pid is not None and not state.ended]
        if self._launcher_pid is not None:
            found.append(self._launcher_pid)
        return found

    def terminate(self) -> None:
        """Ask every session of the group to end."""
        self.ending = True
        for session in self.sessions:
            signal_group(session, signal.SIGTERM)

    def kill(self) -> None:
        """End everything of the group, also what has left its session."""
        self.ending = True
        leaders = self.leaders()
        everything = descendants(leaders) if leaders else set()
        for session in self.sessions:
            signal_group(session, signal.SIGKILL)
        for pid in everything:
            signal_process(pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the logs and give the port back; every process is gone."""
        for state in self.states.values():
            if state.output is not None:
                state.output.close()
        if self.launcher_output is not None:
            self.launcher_output.close()
        self._release_port()
        with contextlib.suppress(OSError):
            os.unlink(self.paths.run_dir / ".modules.json")

    def _release_port(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None
