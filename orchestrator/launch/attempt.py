"""One attempt under supervision, from the order to the verdict.

The way of an attempt: wait for the fork server → wait for the host's timed section → launch the
neighbours, if contention is measured, and wait until they are at it → launch the ranks → follow them →
end whatever is left → judge. ``stop`` may come at any moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import OrchError
from orchestrator.launch import commands
from orchestrator.launch.children import Children
from orchestrator.launch.environment import PinBackendUnsupported, inherited, job_environment
from orchestrator.launch.events import Progress, Started, SupervisorEvent, Timed, Waiting
from orchestrator.launch.group import Output, RankGroup, RankState
from orchestrator.launch.loop import Loop, Timer
from orchestrator.launch.oom import OomWatch
from orchestrator.launch.order import Launcher, LaunchOrder
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.processes import belongs_to, descendants, signal_group, signal_process
from orchestrator.launch.sections import Sections
from orchestrator.launch.servers import ForkServer, ForkServers
from orchestrator.launch.sharedmemory import used_by
from orchestrator.launch.verdict import AttemptFacts, RankFacts, Stop, judge, may_pass
from orchestrator.store.owner import this_owner
from orchestrator.store.status import Verdict

if TYPE_CHECKING:
    from orchestrator.store.rows import AttemptEnd

_RECORDS_GRACE_S = 2.0
"""After a rank has failed its peers get so long to write their own account before they are ended."""
_TERM_GATHER_S = 1.0
"""Whoever ends an allocation sends TERM to ranks and supervisor alike: so long after a rank was ended by
one it is not judged, so that the supervisor's own can say why."""
_STRAY_LIMIT_S = 10.0
"""A killed process that has not gone by then hangs in the kernel: it is reported, not waited for."""
_STOP_FILE = "stop"


class Phase(Enum):
    """Where an attempt is."""

    WAITING = 1
    RUNNING = 2
    ENDING = 3
    OVER = 4


class Host(Protocol):
    """What an attempt needs of its supervisor."""

    loop: Loop
    children: Children
    servers: ForkServers
    sections: Sections
    oom: OomWatch

    def emit(self, event: SupervisorEvent) -> None:
        """Tell orch."""

    def attempt_over(self, attempt: Attempt) -> None:
        """Every process of the attempt is gone: judge and record it."""

    def watch_spool(self, attempt: Attempt, group: RankGroup) -> None:
        """Call ``spool_changed`` when a file in the group's spool folder changes."""

    def others_active(self, attempt: Attempt) -> bool:
        """Whether other attempts have processes now."""


def utc_now() -> str:
    """The time as ISO-8601 in UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Attempt:
    """See the module. Everything happens in the supervisor's loop."""

    def __init__(self, host: Host, order: LaunchOrder) -> None:
        self.order = order
        self.paths = AttemptPaths(Path(order.run_dir))
        self.phase = Phase.WAITING
        self.mode: Launcher = order.launcher
        self.launch_note: str | None = None
        self.leftovers: list[str] = []
        self.shared_memory: set[Path] = set()
        """What its ranks had mapped when they were ended."""
        self._host = host
        self._loop = host.loop
        self._stop: Stop | None = None
        self._stop_detail = ""
        self._server: ForkServer | None = None
        self._timers: list[Timer] = []
        self._holds_section = False
        self._asked_at = time.monotonic()
        self._launched_at: float | None = None
        self._ended_at: float | None = None
        self._started_at_iso: str | None = None
        self._ended_at_iso: str | None = None
        self._last_record_at = 0.0
        self._told_iterations = 0
        self._oom_count = 0
        self._once: set[str] = set()
        self._failing = False
        self._killed = False
        self._knows_of_no_stop = False
        self._stray_deadline: float | None = None
        self._stray_pids: set[int] = set()
        self._sampler_pid: int | None = None
        self._sampler_output: Output | None = None
        self.measured = RankGroup(host.loop, host.children, order, order.ranks, self.paths, "measured", self)
        self.neighbours = [
            RankGroup(host.loop, host.children, order, ranks, self.paths.neighbour(n), "neighbour", self)
            for n, ranks in enumerate(order.neighbours, start=1)
        ]

    @property
    def uid(self) -> str:
        """The attempt's uid."""
        return self.order.attempt_uid

    @property
    def groups(self) -> list[RankGroup]:
        """The measured group and its neighbours."""
        return [self.measured, *self.neighbours]

    # -- before the launch -------------------------------------------------------------------------

    def begin(self) -> None:
        """Start on the way."""
        if self.mode == "fork":
            self._want_server()
        else:
            self._want_section()

    def _want_server(self) -> None:
        order = self.order
        server = self._host.servers.get(order.worker, order.accelerator, order.env)
        if server is None:
            self._fall_back("the fork server could not be started")
            self._want_section()
            return
        self._server = server
        if server.is_ready:
            self._server_settled()
        else:
            self._host.emit(Waiting(self.uid, "fork server"))
            server.when_settled(self._server_settled)

    def _server_settled(self) -> None:
        if self.phase is not Phase.WAITING:
            return
        assert self._server is not None
        if self._server.is_gone:
            self._want_server()
            return
        if self._server.unsafe is not None:
            self._fall_back(self._server.unsafe)
        self._want_section()

    def _fall_back(self, reason: str) -> None:
        self.mode, self._server = "spawn", None
        self.launch_note = f"spawn instead of fork: {reason}"

    def _want_section(self) -> None:
        if not self.order.timed_section:
            self._prepare()
        elif self._host.sections.request(self, self._section_granted):
            self._section_granted()
        else:
            self._host.emit(Waiting(self.uid, "timed section"))

    def _section_granted(self) -> None:
        if self.phase is not Phase.WAITING:
            self._host.sections.release(self)
            return
        self._holds_section = True
        self._host.emit(Timed(self.uid, True))
        if self._server is not None and self._server.is_gone:
            # It died while this one stood in line: line up again behind a new one.
            self._release_section()
            self._want_server()
            return
        self._prepare()

    # -- the launch --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._launched_at = self._last_record_at = time.monotonic()
        self._started_at_iso = utc_now()
        self._oom_count = self._host.oom.recent_count()
        self.phase = Phase.RUNNING
        order = self.order
        late = f"not done within {order.timeout_s:g} s"
        self._after(order.timeout_s, lambda: self.stop(Stop.TIMEOUT, late))
        self._after(order.start_timeout_s, self._check_start)
        if order.hang_s is not None:
            self._after(order.hang_s, self._check_hang)
        try:
            _make_folders(self.paths)
            self.paths.owner_file.write_text(this_owner())
            for group in self.groups:
                group.prepare(self.mode)
                self._host.watch_spool(self, group)
            for group in self.neighbours:
                group.launch(self._server)
            if not self.neighbours:
                self._launch_measured()
        except PinBackendUnsupported as error:
            self.stop(Stop.UNSUPPORTED, str(error))
        except (OSError, OrchError) as error:
            self.stop(Stop.NOT_STARTED, f"the ranks could not be started: {error}")

    def _launch_measured(self) -> None:
        self.measured.launch(self._server)
        if self.mode != "fork":
            self._tell_started()
        if float(self.order.parameters.get("sampler_hz") or 0) > 0:
            self._start_sampler()

    def _tell_started(self) -> None:
        self._host.emit(Started(self.uid, self.mode, self.measured.port, self.launch_note))

    def _start_sampler(self) -> None:
        self._sampler_output = Output(self._loop, self.paths.sampler_log)
        variables = job_environment(self.order, self.measured.placements, self.measured.port)
        self._sampler_pid = self._host.children.spawn(
            commands.sampler_command(self.measured.job_file),
            environment={**inherited(), **variables},
            folder=str(self.paths.run_dir),
            output=self._sampler_output.write_end,
            on_exit=self._sampler_ended,
        )
        self._sampler_output.close_write_end()

    def group_refused(self, group: RankGroup, reason: str) -> None:
        """The fork server would not fork: start the ranks one by one, or say why not even that works."""
        if self.phase is not Phase.RUNNING:
            for state in group.states.values():
                state.ended = True
            self._step()
            return
        self._fall_back(reason)
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
            self._last_record_at = time.monotonic()
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
            self._step_ending()

    def _step_running(self) -> None:
        group = self.measured
        if group.launched_at is None:
            if any(not neighbour.alive for neighbour in self.neighbours):
                self.stop(Stop.NEIGHBOUR, "a neighbour ended before the measured ranks were started")
            elif all(neighbour.ready for neighbour in self.neighbours):
                try:
                    self._launch_measured()
                except (OSError, OrchError) as error:
                    self.stop(Stop.NOT_STARTED, f"the ranks could not be started: {error}")
            return
        if self._holds_section and not group.timing:
            self._release_section()
        if group.terminated and not group.delivered and not self._knows_of_no_stop:
            self._after_once("terminated", _TERM_GATHER_S, self._no_stop_came)
            return
        if not group.alive:
            self._end(self.order.grace_s if group.delivered else 0.0)
            return
        if group.delivered:
            # A rank that hangs while it is torn down has delivered all the same.
            self._after_once("leave", self.order.grace_s, lambda: self._end(0.0))
        elif not self._failing and any(
            state.tail.error is not None or (state.ended and not state.tail.final)
            for state in group.states.values()
        ):
            self._failing = True
            self._after_once("failing", _RECORDS_GRACE_S, lambda: self._end(self.order.grace_s))
        elif self.neighbours and group.timing and any(not n.alive for n in self.neighbours):
            self.stop(Stop.NEIGHBOUR, "a neighbour ended before the measured ranks were done")

    def _no_stop_came(self) -> None:
        self._knows_of_no_stop = True
        self._step()

    def _check_start(self) -> None:
        if self.phase is Phase.RUNNING and not (self.measured.launched_at and self.measured.ready):
            self.stop(Stop.START_TIMEOUT, f"nothing was measured within {self.order.start_timeout_s:g} s")

    def _check_hang(self) -> None:
        hang_s = self.order.hang_s
        if hang_s is None or self.phase is not Phase.RUNNING:
            return
        silent_s = time.monotonic() - self._last_record_at
        # Until the first timed operation the start timeout watches: a build writes no records.
        if silent_s < hang_s or not self.measured.ready:
            self._after(max(hang_s - silent_s, 0.05), self._check_hang)
        else:
            self.stop(Stop.HANG, f"no record for {hang_s:g} s")

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, why: Stop, detail: str, *, now: bool = False) -> None:
        """End the attempt: TERM, grace, KILL; with ``now`` KILL at once."""
        if self.phase is Phase.OVER:
            return
        if self._stop is None and not (self._failing or self.phase is Phase.ENDING):
            self._stop, self._stop_detail = why, detail
        if self.phase is Phase.WAITING:
            self._over()
            return
        self._end(0.0 if now else self.order.grace_s)

    def _end(self, grace_s: float) -> None:
        """End all processes that are left; ``grace_s`` is between TERM and KILL."""
        first = self.phase is not Phase.ENDING
        self.phase = Phase.ENDING
        if first:
            self._cancel_timers()
            self._ended_at = time.monotonic()
            self._ended_at_iso = utc_now()
            for group in self.neighbours:
                _touch(group)
            leaders = [pid for group in self.groups for pid in group.leaders()]
            if leaders:
                self.shared_memory = used_by(descendants(leaders))
            if any(group.alive for group in self.groups) and grace_s > 0:
                for group in self.groups:
                    if group is self.measured or not self.measured.delivered:
                        group.terminate()
            if self._sampler_pid is not None:
                signal_process(self._sampler_pid, signal.SIGTERM)
        if grace_s <= 0 and not self._killed:
            self._kill()
        elif first:
            self._after(grace_s, self._kill)
        self._step_ending()

    def _kill(self) -> None:
        self._killed = True
        for group in self.groups:
            group.kill()
        if self._sampler_pid is not None:
            signal_group(self._sampler_pid, signal.SIGKILL)
        self._step_ending()

    def _sampler_ended(self, _code: int | None) -> None:
        self._sampler_pid = None
        self._step()

    def _step_ending(self) -> None:
        if self.phase is not Phase.ENDING or self._sampler_pid is not None:
            return
        if any(group.alive for group in self.groups):
            return
        strays = self._strays()
        if not strays:
            self._over()
            return
        if self._stray_deadline is None:
            self._stray_deadline = time.monotonic() + _STRAY_LIMIT_S
        elif time.monotonic() > self._stray_deadline:
            names = ", ".join(map(str, strays))
            self.leftovers.append(f"processes that KILL does not end: {names}")
            self._over()
            return
        self._stray_pids.update(strays)
        for pid in strays:
            signal_process(pid, signal.SIGKILL)
        self._host.children.on_stray_reaped(self._step_ending)
        self._after(0.05, self._step_ending)

    def _strays(self) -> list[int]:
        """What the attempt's ranks have left: orphans come to the supervisor, which is subreaper."""
        orphans = self._host.children.strays()
        if not orphans:
            return []
        if self._host.others_active(self):
            sessions = {session for group in self.groups for session in group.sessions}
            orphans = [
                pid
                for pid in orphans
                if any(
                    belongs_to(each, sessions=sessions, run_dir=self.order.run_dir, attempt_uid=self.uid)
                    for each in descendants([pid])
                )
            ]
        return sorted(descendants(orphans)) if orphans else []

    def _over(self) -> None:
        self.phase = Phase.OVER
        self._cancel_timers()
        self._release_section()
        for group in self.groups:
            group.read_spool()
            group.close()
        if self._sampler_output is not None:
            self._sampler_output.close()
        if not self.leftovers:
            with contextlib.suppress(OSError):
                self.paths.owner_file.unlink()
        self._host.attempt_over(self)

    # -- the result --------------------------------------------------------------------------------

    @property
    def has_processes(self) -> bool:
        """Whether processes of this attempt may exist."""
        return self.phase in (Phase.RUNNING, Phase.ENDING)

    def facts(self) -> AttemptFacts:
        """What was seen."""
        group = self.measured
        launcher_output = group.launcher_output
        return AttemptFacts(
            ranks=tuple(self._rank_facts(state) for state in group.states.values()),
            stop=self._stop,
            stop_detail=self._stop_detail,
            launcher=self.mode,
            launcher_exit_status=group.launcher_exit_status,
            launcher_signal=group.launcher_signal,
            launcher_oom_killed=self._host.oom.killed(None, self._oom_count) if launcher_output else False,
            launcher_last_line=launcher_output.last_line() if launcher_output else "",
        )

    def _rank_facts(self, state: RankState) -> RankFacts:
        tail = state.tail
        failed = not tail.final
        return RankFacts(
            rank=state.placement.rank,
            final=tail.final,
            error=tail.error,
            states_intact=tail.states_intact,
            devices_ok=tail.devices_ok,
            exit_status=state.exit_status,
            signal=state.signal,
            oom_killed=state.signal == signal.SIGKILL and self._host.oom.killed(state.pid, self._oom_count),
            last_line=state.output.last_line() if failed and state.output is not None else "",
        )

    def all_pids(self) -> set[int]:
        """Every process of it that has been seen: the ranks, and what they left."""
        states = [state for group in self.groups for state in group.states.values()]
        return self._stray_pids | {state.pid for state in states if state.pid is not None}

    def ports(self) -> set[int]:
        """The ports that were leased for it."""
        return {group.port for group in self.groups if group.port and group.launched_at is not None}

    def verdict(self) -> tuple[Verdict, bool]:
        """The verdict, and whether the job is worth another attempt."""
        verdict = judge(self.facts())
        order = self.order
        return verdict, may_pass(verdict, self._stop, order.retries_left, order.infrastructure_retries_left)

    def ending(self) -> tuple[AttemptEnd, bool]:
        """The attempt's end as the database takes it."""
        from orchestrator.store.rows import AttemptEnd  # a node of a cluster never needs it

        verdict, retry = self.verdict()
        end = AttemptEnd(
            self.order.attempt_id,
            verdict.status,
            verdict.failure_kind,
            verdict.message,
            retry,
            self.columns(),
        )
        return end, retry

    def columns(self) -> dict[str, object]:
        """Columns of ``attempt`` known here."""
        group = self.measured
        tails = [state.tail for state in group.states.values()]
        launched, ended = self._launched_at, self._ended_at
        values: dict[str, object] = {
            "host": socket.gethostname(),
            "launch_mode": self.mode if launched is not None else None,
            "launch_note": self.launch_note,
            "port": group.port or None,
            "started_at": self._started_at_iso,
            "timed_from_at": min(_known(t.timed_from_at for t in tails), default=None),
            "timed_to_at": max(_known(t.timed_to_at for t in tails), default=None),
            "ended_at": self._ended_at_iso or utc_now(),
            "wait_s": (launched if launched is not None else time.monotonic()) - self._asked_at,
            "wall_s": ended - launched if launched is not None and ended is not None else None,
            "loop_s": max((t.loop_s for t in tails if t.loop_s is not None), default=None),
            "exit_status": self._exit_status(),
            "signal": self._signal(),
        }
        uuids = [placement.device_uuid for placement in group.placements]
        if any(uuids):
            values["device_uuids"] = json.dumps(uuids)
        return {name: value for name, value in values.items() if value is not None}

    def _exit_status(self) -> int | None:
        if self.measured.launcher_exit_status is not None:
            return self.measured.launcher_exit_status
        statuses = [s.exit_status for s in self.measured.states.values() if s.exit_status is not None]
        return max(statuses, default=None)

    def _signal(self) -> int | None:
        if self.measured.launcher_signal is not None:
            return self.measured.launcher_signal
        return next((s.signal for s in self.measured.states.values() if s.signal is not None), None)

    # -- small things ------------------------------------------------------------------------------

    def _after(self, delay_s: float, run: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(delay_s, run))

    def _after_once(self, name: str, delay_s: float, run: Callable[[], None]) -> None:
        if name not in self._once:
            self._once.add(name)
            self._after(delay_s, run)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _release_section(self) -> None:
        held, self._holds_section = self._holds_section, False
        self._host.sections.release(self)
        if held:
            self._host.emit(Timed(self.uid, False))


def _known(values: Iterable[str | None]) -> list[str]:
    return [value for value in values if value is not None]


def _make_folders(paths: AttemptPaths) -> None:
    """The run directory, usually a new one beside others, and the spool in it."""
    try:
        os.mkdir(paths.run_dir)
        os.mkdir(paths.spool_dir)
    except OSError:
        os.makedirs(paths.spool_dir, exist_ok=True)


def _touch(group: RankGroup) -> None:
    """Ask a neighbour to leave its loop after this iteration."""
    if group.launched_at is not None:
        (group.paths.run_dir / _STOP_FILE).touch()
