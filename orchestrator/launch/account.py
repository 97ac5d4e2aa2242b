"""What was seen of an attempt: the facts it is judged by, the verdict, its columns in the database."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.launch.clock import utc_now
from orchestrator.launch.group import RankGroup
from orchestrator.launch.oom import OomWatch
from orchestrator.launch.order import Launcher, LaunchOrder
from orchestrator.launch.ranks import RankState
from orchestrator.launch.verdict import AttemptFacts, RankFacts, Stop, is_disk_full, judge, may_pass
from orchestrator.store.status import Verdict

if TYPE_CHECKING:
    from orchestrator.store.rows import AttemptEnd


@dataclass(slots=True)
class Course:
    """When what happened to an attempt; instants are monotonic seconds.

    Attributes:
        asked_at: when it was ordered.
        launched_at: when its ranks were started; None = not yet, as for all that follow.
        ended_at: when the last of its processes was ended or seen to be gone.
        stop: why it was stopped; None if it came to its end by itself.
        oom_count: processes that the kernel had killed for memory before the launch.
    """

    asked_at: float
    launched_at: float | None = None
    ended_at: float | None = None
    started_at_iso: str | None = None
    ended_at_iso: str | None = None
    stop: Stop | None = None
    stop_detail: str = ""
    oom_count: int = 0

    def launch(self) -> None:
        """The ranks are started now."""
        self.launched_at = time.monotonic()
        self.started_at_iso = utc_now()

    def end(self) -> None:
        """The processes are ended now."""
        self.ended_at = time.monotonic()
        self.ended_at_iso = utc_now()


def facts(group: RankGroup, course: Course, mode: Launcher, oom: OomWatch) -> AttemptFacts:
    """What was seen of the measured ranks."""
    output = group.launcher_output
    return AttemptFacts(
        ranks=tuple(_rank_facts(state, course, oom) for state in group.states.values()),
        stop=course.stop,
        stop_detail=course.stop_detail,
        launcher=mode,
        launcher_exit_status=group.launcher_exit_status,
        launcher_signal=group.launcher_signal,
        launcher_oom_killed=oom.killed(None, course.oom_count) if output else False,
        # The command has words of its own after those of the rank that failed.
        launcher_last_line=output.last_line(preferred=is_disk_full) if output else "",
    )


def verdict(order: LaunchOrder, course: Course, seen: AttemptFacts) -> tuple[Verdict, bool]:
    """The verdict, and whether the job is worth another attempt."""
    judged = judge(seen)
    return judged, may_pass(judged, course.stop, order.retries_left, order.infrastructure_retries_left)


def ending(
    order: LaunchOrder, judged: tuple[Verdict, bool], known: dict[str, object]
) -> tuple[AttemptEnd, bool]:
    """The attempt's end as the database takes it, and whether the job is worth another attempt."""
    from orchestrator.store.rows import AttemptEnd  # a node of a cluster never needs it

    end, retry = judged
    return AttemptEnd(order.attempt_id, end.status, end.failure_kind, end.message, retry, known), retry


def _rank_facts(state: RankState, course: Course, oom: OomWatch) -> RankFacts:
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
        oom_killed=state.signal == signal.SIGKILL and oom.killed(state.pid, course.oom_count),
        last_line=state.output.last_line() if failed and state.output is not None else "",
    )


def columns(group: RankGroup, course: Course, mode: Launcher, note: str | None) -> dict[str, object]:
    """Columns of ``attempt`` that the supervisor knows."""
    tails = [state.tail for state in group.states.values()]
    launched, ended = course.launched_at, course.ended_at
    values: dict[str, object] = {
        "host": socket.gethostname(),
        "launch_mode": mode if launched is not None else None,
        "launch_note": note,
        "port": group.port or None,
        "started_at": course.started_at_iso,
        "timed_from_at": min(_known(t.timed_from_at for t in tails), default=None),
        "timed_to_at": max(_known(t.timed_to_at for t in tails), default=None),
        "ended_at": course.ended_at_iso or utc_now(),
        "wait_s": (launched if launched is not None else time.monotonic()) - course.asked_at,
        "wall_s": ended - launched if launched is not None and ended is not None else None,
        "loop_s": max((t.loop_s for t in tails if t.loop_s is not None), default=None),
        "exit_status": _exit_status(group),
        "signal": _signal(group),
    }
    uuids = [placement.device_uuid for placement in group.placements]
    if any(uuids):
        values["device_uuids"] = json.dumps(uuids)
    return {name: value for name, value in values.items() if value is not None}


def _exit_status(group: RankGroup) -> int | None:
    if group.launcher_exit_status is not None:
        return group.launcher_exit_status
    statuses = [s.exit_status for s in group.states.values() if s.exit_status is not None]
    return max(statuses, default=None)


def _signal(group: RankGroup) -> int | None:
    if group.launcher_signal is not None:
        return group.launcher_signal
    return next((s.signal for s in group.states.values() if s.signal is not None), None)


def _known(values: Iterable[str | None]) -> list[str]:
    return [value for value in values if value is not None]
