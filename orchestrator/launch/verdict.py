"""How did the attempt end? A pure function from what was seen to a verdict.

Exit status is no proof of success (the ``deepspeed`` command leaves with 0 when the process between it
and the ranks is killed): an attempt is ok if and only if every rank delivered its final record and said
that every state came back whole and lay where it belongs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.launch.processes import signal_name
from orchestrator.launch.spool import ErrorRecord
from orchestrator.store.status import FailureKind, JobStatus, Verdict


class Stop(StrEnum):
    """Why the supervisor ended an attempt that had not failed by itself."""

    TIMEOUT = "timeout"
    START_TIMEOUT = "start_timeout"
    HANG = "hang"
    CANCELLED = "cancelled"
    SERVER_DIED = "server_died"
    EVICTED = "evicted"
    """The place where it ran was taken away: no fault of the job's, and nobody's wish."""
    NEIGHBOUR = "neighbour"
    """The group that was to make the contention ended early."""
    NOT_STARTED = "not_started"
    FORK_UNSAFE = "fork_unsafe"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What is known of one rank.

    Attributes:
        exit_status: None if it was ended by a signal, or nobody saw its end.
        signal: the signal that ended it, if nobody here had sent one.
        oom_killed: the kernel or the cgroup says it killed for memory.
        last_line: the last thing it printed.
    """

    rank: int
    final: bool = False
    error: ErrorRecord | None = None
    states_intact: bool = True
    devices_ok: bool = True
    exit_status: int | None = None
    signal: int | None = None
    oom_killed: bool = False
    last_line: str = ""


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What is known of an attempt when all its processes are gone.

    Attributes:
        ranks: one entry for every rank that there should have been.
        stop: why the supervisor ended it; None if it did not, or only because a rank had failed.
        stop_detail: the same for a person.
        launcher: fork, spawn or deepspeed.
        launcher_exit_status: of the ``deepspeed`` command; None if there was none or a signal ended it.
        launcher_signal: the signal that ended the ``deepspeed`` command.
        launcher_oom_killed: the kernel or the cgroup says it killed for memory meanwhile.
    """

    ranks: tuple[RankFacts, ...]
    stop: Stop | None = None
    stop_detail: str = ""
    launcher: str = "fork"
    launcher_exit_status: int | None = None
    launcher_signal: int | None = None
    launcher_oom_killed: bool = False
    launcher_last_line: str = ""


_ADDRESS_IN_USE = re.compile(r"address already in use|EADDRINUSE|errno: ?98\b", re.IGNORECASE)

_NO_SPACE = re.compile(r"no space left on|ENOSPC|errno:? ?28\b|disk quota exceeded", re.IGNORECASE)

_STOPPED: dict[Stop, tuple[JobStatus, FailureKind | None]] = {
    Stop.TIMEOUT: (JobStatus.timeout, None),
    Stop.START_TIMEOUT: (JobStatus.timeout, None),
    Stop.HANG: (JobStatus.failed, FailureKind.hang),
    Stop.CANCELLED: (JobStatus.cancelled, None),
    Stop.EVICTED: (JobStatus.lost, None),
    Stop.SERVER_DIED: (JobStatus.failed, FailureKind.killed),
    Stop.NEIGHBOUR: (JobStatus.failed, FailureKind.exception),
    Stop.NOT_STARTED: (JobStatus.failed, FailureKind.exception),
    Stop.FORK_UNSAFE: (JobStatus.failed, FailureKind.fork_unsafe),
    Stop.UNSUPPORTED: (JobStatus.failed, FailureKind.unsupported),
}

_PASSING = frozenset({FailureKind.killed, FailureKind.no_result, FailureKind.hang})


def _failed(kind: str, message: str) -> Verdict:
    return Verdict(JobStatus.failed, FailureKind(kind), message)


def is_address_in_use(text: str) -> bool:
    """Whether a message says that the rendezvous port was taken."""
    return _ADDRESS_IN_USE.search(text) is not None


def is_disk_full(text: str) -> bool:
    """Whether a message says that a file system or a quota is full."""
    return _NO_SPACE.search(text) is not None


def judge(facts: AttemptFacts) -> Verdict:
    """The verdict on an attempt; total: any facts have one."""
    if facts.ranks and all(rank.final for rank in facts.ranks):
        return _judge_delivered(facts)
    full = _disk_full(facts)
    if full is not None:
        # The place failed, not the job: as lost as with a host that was taken away.
        return Verdict(JobStatus.lost, None, full)
    if facts.stop is not None:
        status, kind = _STOPPED[facts.stop]
        return Verdict(status, kind, facts.stop_detail or facts.stop.value.replace("_", " "))
    for rank in facts.ranks:
        if rank.error is not None and is_address_in_use(rank.error.message):
            return _failed("port", f"rank {rank.rank}: {rank.error.message}")
    for rank in facts.ranks:
        if rank.signal is not None and not rank.final:
            return _judge_signal(f"rank {rank.rank}", rank.signal, rank.oom_killed)
    errors = [rank for rank in facts.ranks if rank.error is not None]
    # A rank that names its trouble says more than one whose peer closed the connection.
    errors.sort(key=lambda rank: (rank.error is not None and _is_collateral(rank.error), rank.rank))
    if errors:
        return _judge_error(errors[0])
    flagged = _judge_flags(facts)
    if flagged is not None:
        return flagged
    return _judge_silence(facts)


def _disk_full(facts: AttemptFacts) -> str | None:
    """What says that the disk was full: the failed start, a rank's record, or the last it could print."""
    if facts.stop is not None:
        cannot_start = facts.stop in (Stop.NOT_STARTED, Stop.FORK_UNSAFE)
        return facts.stop_detail if cannot_start and is_disk_full(facts.stop_detail) else None
    for rank in facts.ranks:
        # The record of its error may have found no room either.
        said = rank.error.message if rank.error is not None else rank.last_line if rank.exit_status else ""
        if not rank.final and is_disk_full(said):
            return f"rank {rank.rank}: {said}"
    if facts.launcher_exit_status and is_disk_full(facts.launcher_last_line):
        return facts.launcher_last_line
    return None


def _judge_delivered(facts: AttemptFacts) -> Verdict:
    return _judge_flags(facts) or Verdict(JobStatus.ok, None, None)


def _judge_flags(facts: AttemptFacts) -> Verdict | None:
    changed = [str(rank.rank) for rank in facts.ranks if not rank.states_intact]
    if changed:
        return _failed("states_changed", f"states came back changed on rank {', '.join(changed)}")
    misplaced = [str(rank.rank) for rank in facts.ranks if not rank.devices_ok]
    if misplaced:
        return _failed("wrong_device", f"a state lay on the wrong device on rank {', '.join(misplaced)}")
    return None


def _is_collateral(error: ErrorRecord) -> bool:
    if error.status != "failed" or error.failure_kind not in (None, "exception"):
        return False
    return any(word in error.message for word in ("Connection", "connection", "peer", "Socket", "NCCL"))


def _judge_signal(who: str, number: int, oom_killed: bool) -> Verdict:
    name = signal_name(number)
    if oom_killed:
        return Verdict(JobStatus.oom_host, None, f"{who} was killed by {name}: host memory ran out")
    return _failed("killed", f"{who} was killed by {name}")


def _judge_error(rank: RankFacts) -> Verdict:
    assert rank.error is not None
    message = f"rank {rank.rank}: {rank.error.message}"
    try:
        status = JobStatus(rank.error.status)
    except ValueError:
        status = JobStatus.failed
    if status not in (JobStatus.oom_gpu, JobStatus.oom_host, JobStatus.skipped):
        try:
            kind = FailureKind(rank.error.failure_kind or "exception")
        except ValueError:
            kind = FailureKind.exception
        return Verdict(JobStatus.failed, kind, message)
    return Verdict(status, None, message)


def _signal_in_status(status: int) -> int | None:
    """A signal that an exit status stands for: 128+n of shells, 256-n of Python's ``sys.exit(-n)``."""
    if 128 < status <= 128 + 31:
        return status - 128
    if 256 - 31 <= status < 256:
        return 256 - status
    return None


def _judge_silence(facts: AttemptFacts) -> Verdict:
    """No final record everywhere, no error record, no signal seen on a rank."""
    missing = [rank for rank in facts.ranks if not rank.final]
    names = ", ".join(str(rank.rank) for rank in missing)
    if facts.launcher_exit_status is not None:
        number = _signal_in_status(facts.launcher_exit_status)
        if number is not None:
            return _judge_signal("a rank", number, facts.launcher_oom_killed)
    if facts.launcher_signal is not None:
        name = signal_name(facts.launcher_signal)
        message = f"the launcher was killed by {name}; no final record of rank {names}"
        return _failed("no_result", message)
    if is_address_in_use(facts.launcher_last_line):
        return _failed("port", facts.launcher_last_line)
    for rank in missing:
        if rank.exit_status:
            number = _signal_in_status(rank.exit_status)
            if number is not None:
                return _judge_signal(f"rank {rank.rank}", number, rank.oom_killed)
            said = f": {rank.last_line}" if rank.last_line else ""
            kind = "port" if is_address_in_use(said) else "exception"
            return _failed(kind, f"rank {rank.rank} left with status {rank.exit_status}{said}")
    if facts.launcher_exit_status:
        said = f": {facts.launcher_last_line}" if facts.launcher_last_line else ""
        return _failed("exception", f"the launcher left with status {facts.launcher_exit_status}{said}")
    return _failed("no_result", f"no final record of rank {names}")


def may_pass(
    verdict: Verdict, stop: Stop | None, retries_left: int, infrastructure_retries_left: int
) -> bool:
    """Whether the job is worth another attempt: the failure may be gone next time."""
    if verdict.status == JobStatus.lost:
        return infrastructure_retries_left > 0
    if verdict.status != JobStatus.failed:
        return False
    if verdict.failure_kind == FailureKind.port or stop is Stop.SERVER_DIED:
        return infrastructure_retries_left > 0
    return verdict.failure_kind in _PASSING and retries_left > 0
