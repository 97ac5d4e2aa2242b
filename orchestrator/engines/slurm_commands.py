"""How do we speak to Slurm? Its own commands, each with a deadline, nothing kept between calls.

One ``squeue`` tells of every job, whatever their number. Jobs that the controller has forgotten
(``MinJobAge``) are asked of ``sacct`` where there is accounting.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import EngineError

COMMAND_TIMEOUT_S = 60.0
SQUEUE_FORMAT = "%i|%T|%N|%r|%j"
SINFO_FORMAT = "%N|%P|%c|%m|%G"
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")


class SlurmState(StrEnum):
    """What a Slurm state means for an attempt."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"

    @property
    def is_final(self) -> bool:
        """The job is over for Slurm."""
        return self not in (SlurmState.WAITING, SlurmState.RUNNING)


_MEANING = {
    "PENDING": SlurmState.WAITING,
    "CONFIGURING": SlurmState.WAITING,
    "REQUEUED": SlurmState.WAITING,
    "REQUEUE_HOLD": SlurmState.WAITING,
    "REQUEUE_FED": SlurmState.WAITING,
    "SPECIAL_EXIT": SlurmState.WAITING,
    "RESV_DEL_HOLD": SlurmState.WAITING,
    "RUNNING": SlurmState.RUNNING,
    "SUSPENDED": SlurmState.RUNNING,
    "STOPPED": SlurmState.RUNNING,
    "COMPLETING": SlurmState.RUNNING,
    "SIGNALING": SlurmState.RUNNING,
    "STAGE_OUT": SlurmState.RUNNING,
    "RESIZING": SlurmState.RUNNING,
    "COMPLETED": SlurmState.COMPLETED,
    "FAILED": SlurmState.FAILED,
    "LAUNCH_FAILED": SlurmState.FAILED,
    "CANCELLED": SlurmState.CANCELLED,
    "REVOKED": SlurmState.CANCELLED,
    "TIMEOUT": SlurmState.TIMEOUT,
    "DEADLINE": SlurmState.TIMEOUT,
    "OUT_OF_MEMORY": SlurmState.OUT_OF_MEMORY,
    "NODE_FAIL": SlurmState.NODE_LOST,
    "BOOT_FAIL": SlurmState.NODE_LOST,
    "PREEMPTED": SlurmState.PREEMPTED,
}


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One line of ``squeue``.

    Attributes:
        state: its meaning for us.
        raw_state: Slurm's own word.
        nodes: Slurm's host list, empty while it waits.
        reason: why it waits, or how it ended.
        name: what the job was called when it was submitted.
    """

    job_id: str
    state: SlurmState
    raw_state: str
    nodes: str = ""
    reason: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node of a partition.

    Attributes:
        gpus: its generic resources of kind ``gpu``.
        memory_bytes: None where the cluster's configuration does not say.
    """

    name: str
    cpus: int
    gpus: int
    memory_bytes: int | None


class SlurmUnreachable(EngineError):
    """The controller does not answer now; worth another try later."""


class SlurmFull(EngineError):
    """No more jobs are taken now: a limit on queued jobs; worth another try later."""


def require_commands() -> None:
    """Raises EngineError where this host has no Slurm client."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        raise EngineError(
            f"{', '.join(missing)} not found",
            "engine slurm",
            "run orch on a host with Slurm's client commands (a login node)",
        )


def submit(script: str, arguments: Sequence[str]) -> str:
    """Hands a batch script to ``sbatch``; returns Slurm's job id.

    Raises:
        SlurmUnreachable: no answer from the controller; the job may have been taken all the same.
        SlurmFull: a limit on the number of queued jobs.
        EngineError: Slurm refused the job, with Slurm's own words.
    """
    answer = _run(["sbatch", "--parsable", *arguments, script])
    return answer.strip().splitlines()[-1].partition(";")[0]


def mine() -> list[SlurmJob]:
    """Every job of this user that the controller still knows: one call, whatever the number.

    Raises SlurmUnreachable. A job that is missing from the answer has been forgotten by the controller.
    """
    try:
        answer = _run(["squeue", "--me", "--noheader", "--states=all", f"--format={SQUEUE_FORMAT}"])
    except SlurmUnreachable:
        raise
    except EngineError as error:
        # A controller that is being restarted has many ways to say so; to ask again costs nothing.
        raise SlurmUnreachable(error.what, error.where) from error
    return [job for job in map(_parse, answer.splitlines()) if job is not None]


def nodes(partition: str | None) -> list[SlurmNode]:
    """The nodes of the partition, or of the default one. Raises EngineError if there is no such."""
    lines = _run(["sinfo", "--noheader", "--Node", f"--format={SINFO_FORMAT}"]).splitlines()
    rows = [line.split("|") for line in lines if line.count("|") == 4]
    partitions = {row[1].rstrip("*") for row in rows}
    if partition is not None and not set(partition.split(",")) & partitions:
        there = ", ".join(sorted(partitions))
        raise EngineError(f"there is no partition {partition!r}", "engine slurm", f"there are: {there}")
    found: dict[str, SlurmNode] = {}
    for name, where, cpus, megabytes, gres in rows:
        if where.rstrip("*") in partition.split(",") if partition else where.endswith("*"):
            gpus = sum(int(count) for count in _GPUS.findall(gres))
            memory = int(megabytes.rstrip("+")) << 20
            # 1 is what Slurm says where nobody has configured it.
            found[name] = SlurmNode(name, int(cpus.rstrip("+")), gpus, memory if memory > 1 << 20 else None)
    return list(found.values())


def accounted(job_id: str) -> SlurmJob | None:
    """What accounting says of a job that the controller has forgotten; None without accounting."""
    try:
        answer = _run(
            ["sacct", "-X", "-n", "-P", "-j", job_id, "-o", "JobIDRaw,State,NodeList,Reason,JobName"]
        )
    except EngineError:
        return None
    for line in answer.splitlines():
        job = _parse(line)
        if job is not None and job.job_id == job_id:
            return job
    return None


def cancel(job_ids: Sequence[str], *, kill: bool = False) -> None:
    """Ends jobs: TERM to every process, KILL after the cluster's KillWait; at once with ``kill``.

    Jobs that are over are no error. Raises SlurmUnreachable.
    """
    if not job_ids:
        return
    if kill:
        _run(["scancel", "--quiet", "--full", f"--signal={signal.SIGKILL.name[3:]}", *job_ids], check=False)
    _run(["scancel", "--quiet", *job_ids], check=False)


def wait_for_ends(job_ids: Sequence[str], within_s: float) -> None:
    """Until Slurm has no process of these jobs any more, but not for ever. Raises SlurmUnreachable."""
    deadline_s = time.monotonic() + within_s
    pause_s = 0.1
    while job_ids and time.monotonic() < deadline_s:
        if all(job.state.is_final for job in mine() if job.job_id in job_ids):
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 2.0)


def hosts(host_list: str) -> tuple[str, ...]:
    """``n[1-2]`` as ``("n1", "n2")``; empty for an empty list."""
    if not host_list or host_list in ("(null)", "None assigned"):
        return ()
    return tuple(_run(["scontrol", "show", "hostnames", host_list]).split())


def _parse(line: str) -> SlurmJob | None:
    fields = line.strip().split("|")
    if len(fields) != 5:
        return None
    job_id, raw, where, reason, name = fields
    # Accounting writes "CANCELLED by 1000", and a trailing + where it cut the word.
    word = raw.split()[0].rstrip("+") if raw.split() else ""
    state = _MEANING.get(word)
    return None if state is None else SlurmJob(job_id, state, word, where, reason, name)


def _run(command: list[str], *, check: bool = True) -> str:
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    # Where orch itself runs inside an allocation, these would be taken for options of the new job.
    for name in [key for key in environment if key.startswith(("SLURM_JOB", "SLURM_STEP"))]:
        del environment[name]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            # A Ctrl-C at the terminal is for orch alone: it must not end the scancel that it leads to.
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise EngineError(f"{command[0]} not found", "engine slurm", "install Slurm's client") from error
    except subprocess.TimeoutExpired as error:
        message = f"{command[0]} gave no answer within {COMMAND_TIMEOUT_S:.0f} s"
        raise SlurmUnreachable(message, "engine slurm") from error
    if done.returncode == 0 or not check:
        return done.stdout
    said = " ".join(done.stderr.split()) or f"{command[0]} left with {done.returncode}"
    if _is_unreachable(said):
        raise SlurmUnreachable(said, "engine slurm")
    if any(sign.lower() in said.lower() for sign in _FULL):
        raise SlurmFull(said, "engine slurm")
    raise EngineError(said, "engine slurm", "see the engine options of the sweep file")


_FULL = ("submit limit", "MaxSubmit", "MaxJobCount", "temporarily unable to accept job")


def _is_unreachable(said: str) -> bool:
    signs = (
        "Unable to contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "Zero Bytes were transmitted",
        "Unexpected message",
        "Transport endpoint",
        "try again",
    )
    return any(sign.lower() in said.lower() for sign in signs)
