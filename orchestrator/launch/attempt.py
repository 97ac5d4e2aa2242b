"""One attempt under supervision, from the order to the verdict.

The way of an attempt: wait for its turn (``turn``: the fork server, the host's timed section) → launch the
neighbours, if contention is measured, and wait until they are at it → launch the ranks → follow them →
end whatever is left (``ending``) → judge what was seen (``account``). ``stop`` may come at any moment.
"""

from __future__ import annotations

import contextlib
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchError
from orchestrator.launch import account
from orchestrator.launch.deadlines import Deadlines
from orchestrator.launch.ending import Ending
from orchestrator.launch.environment import PinBackendUnsupported
from orchestrator.launch.events import Progress, Started
from orchestrator.launch.group import RankGroup
from orchestrator.launch.hosting import Host
from orchestrator.launch.order import Launcher, LaunchOrder
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.patience import Patience
from orchestrator.launch.ranks import RankState
from orchestrator.launch.samplerprocess import SamplerProcess
from orchestrator.launch.turn import Turn
from orchestrator.launch.verdict import AttemptFacts, Stop
from orchestrator.store.owner import this_owner
from orchestrator.store.status import Verdict

if TYPE_CHECKING:
    from orchestrator.store.rows import AttemptEnd

_RECORDS_GRACE_S = 2.0
"""After a rank has failed its peers get so long to write their own account before they are ended."""
_TERM_GATHER_S = 1.0
"""Whoever ends an allocation sends TERM to ranks and supervisor alike: so long after a rank was ended by
one it is not judged, so that the supervisor's own can say why."""


class Phase(Enum):
    """Where an attempt is."""

    WAITING = 1
    RUNNING = 2
    ENDING = 3
    OVER = 4


class Attempt:
    """See the module. Everything happens in the supervisor's loop."""

    def __init__(self, host: Host, order: LaunchOrder) -> None:
        self.order = order
        self.paths = AttemptPaths(Path(order.run_dir))
        self.phase = Phase.WAITING
        self._host = host
        self._deadlines = Deadlines(host.loop)
        self._course = account.Course(time.monotonic())
        self._told_iterations = 0
        self._failing = False
        self._knows_of_no_stop = False
        self.measured = RankGroup(host.loop, host.children, order, order.ranks, self.paths, "measured", self)
        self.neighbours = [
            RankGroup(host.loop, host.children, order, ranks, self.paths.neighbour(n), "neighbour", self)
            for n, ranks in enumerate(order.neighbours, start=1)
        ]
        self._turn = Turn(host, order, self._launch)
        self._patience = Patience(order, self.measured, self._deadlines, self.stop)
        self._sampler = SamplerProcess(host, order, self.paths, self._step)
        self._ending = Ending(
            order,
            self.groups,
            self._sampler,
            host.children,
            self._deadlines,
            others_active=lambda: host.others_active(self),
            over=self._over,
        )

    @property
    def uid(self) -> str:
        """The attempt's uid."""
        return self.order.attempt_uid

    @property
    def groups(self) -> list[RankGroup]:
        """The measured group and its neighbours."""
        return [self.measured, *self.neighbours]

    @property
    def mode(self) -> Launcher:
        """How its ranks are started."""
        return self._turn.mode

    @property
    def has_processes(self) -> bool:
        """Whether processes of this attempt may exist."""
        return self.phase in (Phase.RUNNING, Phase.ENDING)

    # -- the launch --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start on the way."""
        self._turn.wait()

    def _launch(self) -> None:
        self._course.launch()
        self._course.oom_count = self._host.oom.recent_count()
        self.phase = Phase.RUNNING
        self._patience.begin()
        try:
            self.paths.make()
            self.paths.owner_file.write_text(this_owner())
            for group in self.groups:
                group.prepare(self.mode)
                self._host.watch_spool(self, group)
            for group in self.neighbours:
                group.launch(self._turn.server)
            if not self.neighbours:
                self._launch_measured()
        except PinBackendUnsupported as error:
            self.stop(Stop.UNSUPPORTED, str(error))
        except (OSError, OrchError) as error:
            self._not_started(error)

    def _not_started(self, error: OSError | OrchError) -> None:
        where = f": {self.paths.run_dir}" if isinstance(error, OSError) and not error.filename else ""
        self.stop(Stop.NOT_STARTED, f"the ranks could not be started: {error}{where}")

    def _launch_measured(self) -> None:
        self.measured.launch(self._turn.server)
        if self.mode != "fork":
            self._tell_started()
        self._sampler.start(self.measured)

    def _tell_started(self) -> None:
        self._host.emit(Started(self.uid, self.mode, self.measured.port, self._turn.note))

    def group_refused(self, group: RankGroup, reason: str) -> None:
        """The fork server would not fork: start the ranks one by one, or say why not even that works."""
        if self.phase is not Phase.RUNNING:
            for state in group.states.values():
                state.ended = True
            self._step()
            return
        self._turn.fall_back(reason)
        try:
            group.prepare_again("spawn")
            group.launch(None)
        except (OSError, OrchError) as error:
            self.stop(Stop.FORK_UNSAFE, f"{reason}; and spawn failed: {error}")
            return
        if group is self.measured:
            self._tell_started()

    def group_lost_its_server(self, _group: RankGroup) -> None:
        """The fork server died, and the ranks with it."""
        self.stop(Stop.SERVER_DIED, "the fork server died")

    def rank_forked(self, group: RankGroup) -> None:
        """The fork server has forked another rank."""
        if group is self.measured and all(s.pid is not None for s in group.states.values()):
            self._tell_started()

    # -- following ---------------------------------------------------------------------------------

    def spool_changed(self) -> None:
        """Some record may have been written."""
        news = [group.read_spool() for group in self.groups]
        if not any(news):
            return
        if news[0]:
            self._patience.heard()
            done = self.measured.iterations
            if done > self._told_iterations and self.measured.alive:
                self._told_iterations = done
                planned = self.order.parameters.get("iteration")
                extra = self.order.parameters.get("instrumented") or 0
                of = int(planned) + int(extra) if planned is not None else 0
                self._host.emit(Progress(self.uid, done, of))
        self._step()

    def rank_ended(self, _group: RankGroup, _state: RankState) -> None:
        """A rank's process is gone."""
        self._step()

    def _step(self) -> None:
        """Do what the state of the groups asks for."""
        if self.phase is Phase.RUNNING:
            self._step_running()
        if self.phase is Phase.ENDING:
            self._ending.step()

    def _step_running(self) -> None:
        group = self.measured
        if group.launched_at is None:
            if any(not neighbour.alive for neighbour in self.neighbours):
                self.stop(Stop.NEIGHBOUR, "a neighbour ended before the measured ranks were started")
            elif all(neighbour.ready for neighbour in self.neighbours):
                try:
                    self._launch_measured()
                except (OSError, OrchError) as error:
                    self._not_started(error)
            return
        if self._turn.holds_section and not group.timing:
            self._turn.release_section()
        if group.terminated and not group.delivered and not self._knows_of_no_stop:
            self._deadlines.after_once("terminated", _TERM_GATHER_S, self._no_stop_came)
            return
        if not group.alive:
            self._end(self.order.grace_s if group.delivered else 0.0)
            return
        if group.delivered:
            # A rank that hangs while it is torn down has delivered all the same.
            self._deadlines.after_once("leave", self.order.grace_s, lambda: self._end(0.0))
        elif not self._failing and any(
            state.tail.error is not None or (state.ended and not state.tail.final)
            for state in group.states.values()
        ):
            self._failing = True
            self._deadlines.after_once("failing", _RECORDS_GRACE_S, lambda: self._end(self.order.grace_s))
        elif self.neighbours and group.timing and any(not n.alive for n in self.neighbours):
            self.stop(Stop.NEIGHBOUR, "a neighbour ended before the measured ranks were done")

    def _no_stop_came(self) -> None:
        self._knows_of_no_stop = True
        self._step()

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, why: Stop, detail: str, *, now: bool = False) -> None:
        """End the attempt: TERM, grace, KILL; with ``now`` KILL at once."""
        if self.phase is Phase.OVER:
            return
        if self._course.stop is None and not (self._failing or self.phase is Phase.ENDING):
            self._course.stop, self._course.stop_detail = why, detail
        if self.phase is Phase.WAITING:
            self._over()
            return
        self._end(0.0 if now else self.order.grace_s)

    def _end(self, grace_s: float) -> None:
        """End all processes that are left; ``grace_s`` is between TERM and KILL."""
        if self.phase is not Phase.ENDING:
            self.phase = Phase.ENDING
            self._deadlines.cancel()
            self._course.end()
        self._ending.end(grace_s)

    def _over(self) -> None:
        self.phase = Phase.OVER
        self._deadlines.cancel()
        self._turn.give_up()
        self._turn.release_section()
        for group in self.groups:
            group.read_spool()
            group.close()
        self._sampler.close()
        if not self.leftovers:
            with contextlib.suppress(OSError):
                self.paths.owner_file.unlink()
        self._host.attempt_over(self)

    # -- the result --------------------------------------------------------------------------------

    @property
    def leftovers(self) -> list[str]:
        """What of it could not be ended, in words."""
        return self._ending.leftovers

    @property
    def shared_memory(self) -> set[Path]:
        """What its ranks had mapped when they were ended."""
        return self._ending.shared_memory

    def facts(self) -> AttemptFacts:
        """What was seen."""
        return account.facts(self.measured, self._course, self.mode, self._host.oom)

    def columns(self) -> dict[str, object]:
        """Columns of ``attempt`` known here."""
        return account.columns(self.measured, self._course, self.mode, self._turn.note)

    def all_pids(self) -> set[int]:
        """Every process of it that has been seen: the ranks, and what they left."""
        states = [state for group in self.groups for state in group.states.values()]
        return self._ending.other_pids | {state.pid for state in states if state.pid is not None}

    def ports(self) -> set[int]:
        """The ports that were leased for it."""
        return {group.port for group in self.groups if group.port and group.launched_at is not None}

    def verdict(self) -> tuple[Verdict, bool]:
        """The verdict, and whether the job is worth another attempt."""
        return account.verdict(self.order, self._course, self.facts())

    def ending(self) -> tuple[AttemptEnd, bool]:
        """The attempt's end as the database takes it, and whether the job is worth another attempt."""
        return account.ending(self.order, self.verdict(), self.columns())
