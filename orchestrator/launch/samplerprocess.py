"""The process that watches a job's memory from outside its ranks, where the cell asks for one."""

from __future__ import annotations

import signal
from collections.abc import Callable

from orchestrator.launch import commands
from orchestrator.launch.environment import inherited, job_environment
from orchestrator.launch.group import RankGroup
from orchestrator.launch.hosting import Host
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.output import Output
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.processes import signal_group, signal_process


class SamplerProcess:
    """Started with the measured ranks, ended with them."""

    def __init__(
        self, host: Host, order: LaunchOrder, paths: AttemptPaths, ended: Callable[[], None]
    ) -> None:
        """``ended`` is called when the process is gone."""
        self._host = host
        self._order = order
        self._paths = paths
        self._on_end = ended
        self._pid: int | None = None
        self._output: Output | None = None

    @property
    def alive(self) -> bool:
        """Whether there is such a process."""
        return self._pid is not None

    def start(self, group: RankGroup) -> None:
        """Watch the group, if its cell wants that; OSError."""
        if not float(self._order.parameters.get("sampler_hz") or 0) > 0:
            return
        self._output = Output(self._host.loop, self._paths.sampler_log)
        variables = job_environment(self._order, group.placements, group.port)
        self._pid = self._host.children.spawn(
            commands.sampler_command(group.job_file),
            environment={**inherited(), **variables},
            folder=str(self._paths.run_dir),
            output=self._output.write_end,
            on_exit=self._ended,
        )
        self._output.close_write_end()

    def terminate(self) -> None:
        """Ask it to end."""
        if self._pid is not None:
            signal_process(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        if self._pid is not None:
            signal_group(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Close its log; it is gone."""
        if self._output is not None:
            self._output.close()

    def _ended(self, _code: int | None) -> None:
        self._pid = None
        self._on_end()
