"""A group of ranks that form one process group: started, followed and ended together.

An attempt has one measured group, and with contention further ones that are its neighbours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from orchestrator.launch import commands
from orchestrator.launch.assignment import fork_request, job_file_of
from orchestrator.launch.children import Children
from orchestrator.launch.environment import inherited, job_environment, rank_variables
from orchestrator.launch.loop import Loop
from orchestrator.launch.order import Launcher, LaunchOrder, RankPlacement
from orchestrator.launch.output import Output
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.ports import PortLease, lease_port
from orchestrator.launch.processes import descendants, signal_group, signal_process
from orchestrator.launch.ranks import GroupWatcher, RankState
from orchestrator.launch.servers import ForkServer
from orchestrator.launch.spool import SpoolTail
from orchestrator.spec.jobfile import Role


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
        job_file = job_file_of(
            self.order, self.placements, self.paths, mode=mode, port=self.port, role=self.role
        )
        job_file.write(self.job_file)

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
        ranks = [(s.placement, s.output) for s in self.states.values() if s.output is not None]
        server.fork(fork_request(self.job_file, self.paths.run_dir, variables, ranks), self)

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
