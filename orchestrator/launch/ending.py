"""How is an attempt ended so that nothing of it is left? TERM, grace, KILL, then whatever else there is."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.launch.children import Children
from orchestrator.launch.deadlines import Deadlines
from orchestrator.launch.group import RankGroup
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.processes import belongs_to, descendants, signal_process
from orchestrator.launch.samplerprocess import SamplerProcess
from orchestrator.launch.sharedmemory import used_by

_STRAY_LIMIT_S = 10.0
"""A killed process that has not gone by then hangs in the kernel: it is reported, not waited for."""
_STRAY_POLL_S = 0.05
_STOP_FILE = "stop"


class Ending:
    """The end of one attempt's processes.

    Attributes:
        leftovers: what could not be ended, in words.
        shared_memory: what its processes had mapped when they were ended.
        other_pids: processes that its ranks had when they were ended, or have left behind.
    """

    def __init__(
        self,
        order: LaunchOrder,
        groups: Sequence[RankGroup],
        sampler: SamplerProcess,
        children: Children,
        deadlines: Deadlines,
        *,
        others_active: Callable[[], bool],
        over: Callable[[], None],
    ) -> None:
        """The first group is the measured one; ``over`` is called when nothing is left."""
        self.leftovers: list[str] = []
        self.shared_memory: set[Path] = set()
        self.other_pids: set[int] = set()
        self._order = order
        self._groups = groups
        self._sampler = sampler
        self._children = children
        self._deadlines = deadlines
        self._others_active = others_active
        self._over = over
        self._has_begun = False
        self._has_killed = False
        self._is_over = False
        self._stray_deadline: float | None = None

    def end(self, grace_s: float) -> None:
        """End all processes that are left; ``grace_s`` is between TERM and KILL. May be called again."""
        first, self._has_begun = not self._has_begun, True
        if first:
            self._ask(grace_s)
        if grace_s <= 0 and not self._has_killed:
            self._kill()
        elif first:
            self._deadlines.after(grace_s, self._kill)
        self.step()

    def step(self) -> None:
        """A process has gone, or some time: look what is left."""
        if not self._has_begun or self._is_over or self._sampler.alive:
            return
        if any(group.alive for group in self._groups):
            return
        strays = self._strays()
        if not strays:
            self._leave()
            return
        if self._stray_deadline is None:
            self._stray_deadline = time.monotonic() + _STRAY_LIMIT_S
        elif time.monotonic() > self._stray_deadline:
            names = ", ".join(map(str, strays))
            self.leftovers.append(f"processes that KILL does not end: {names}")
            self._leave()
            return
        self.other_pids.update(strays)
        for pid in strays:
            signal_process(pid, signal.SIGKILL)
        self._children.on_stray_reaped(self.step)
        self._deadlines.after(_STRAY_POLL_S, self.step)

    def _ask(self, grace_s: float) -> None:
        measured, *neighbours = self._groups
        for group in neighbours:
            _touch(group)
        leaders = [pid for group in self._groups for pid in group.leaders()]
        if leaders:
            # Of what dies together with its rank nothing else will tell.
            self.other_pids = descendants(leaders)
            self.shared_memory = used_by(self.other_pids)
        if any(group.alive for group in self._groups) and grace_s > 0:
            for group in self._groups:
                if group is measured or not measured.delivered:
                    group.terminate()
        self._sampler.terminate()

    def _kill(self) -> None:
        self._has_killed = True
        for group in self._groups:
            group.kill()
        self._sampler.kill()
        self.step()

    def _leave(self) -> None:
        self._is_over = True
        self._over()

    def _strays(self) -> list[int]:
        """What the attempt's ranks have left: orphans come to the supervisor, which is subreaper."""
        orphans = self._children.strays()
        if not orphans:
            return []
        if self._others_active():
            sessions = {session for group in self._groups for session in group.sessions}
            orphans = [pid for pid in orphans if self._is_ours(pid, sessions)]
        return sorted(descendants(orphans)) if orphans else []

    def _is_ours(self, orphan: int, sessions: set[int]) -> bool:
        order = self._order
        return any(
            belongs_to(pid, sessions=sessions, run_dir=order.run_dir, attempt_uid=order.attempt_uid)
            for pid in descendants([orphan])
        )


def _touch(group: RankGroup) -> None:
    """Ask a neighbour to leave its loop after this iteration."""
    if group.launched_at is not None:
        (group.paths.run_dir / _STOP_FILE).touch()
