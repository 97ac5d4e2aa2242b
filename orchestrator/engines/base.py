"""What is an engine? The protocol that ``local``, ``slurm`` and ``ray`` share.

An engine finds room for a job, starts its attempt there and tells what becomes of it. It never
chooses which job is next (``run.py`` does), and whether an attempt counts is the database's word.
The scheduling loop is one thread; nothing here is called from another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt
from orchestrator.store.status import Verdict


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the engine can give to one job, and to all of them together.

    Attributes:
        slots: ranks at once, over all nodes; ``None`` = the engine queues without limit.
        ranks_per_node: most ranks of one job on one node; ``None`` = unknown before it is tried.
        nodes: most nodes of one job.
        accelerator: ``cuda`` or ``cpu``; ``None`` = unknown before a job runs.
        device_bytes: memory of the smallest device; ``None`` = unknown, or a CPU.
        host_bytes: memory of a host that may be filled or pinned; ``None`` = unknown.
        label: for people, e.g. ``2 x NVIDIA H200``.
        probe_uuids: devices of this host whose link orch measures itself.
    """

    slots: int | None = None
    ranks_per_node: int | None = None
    nodes: int = 1
    accelerator: str | None = None
    device_bytes: int | None = None
    host_bytes: int | None = None
    label: str = ""
    probe_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt's ranks are being started.

    Attributes:
        launch_mode: how, if that is known already.
        where: for people, e.g. ``GPU 0`` or ``node3``.
        job_id: set by engines whose jobs are claimed elsewhere (pilots).
    """

    attempt_uid: str
    launch_mode: str | None = None
    where: str = ""
    job_id: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the attempt is.

    Attributes:
        phase: ``timed``, what it waits for, or empty; ``None`` = as before.
        iteration: iterations done by the slowest rank so far.
        of: iterations in all; 0 = unknown.
    """

    attempt_uid: str
    phase: str | None = None
    iteration: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt is over, and the database knows.

    Attributes:
        retry: an infrastructure failure with retries left: the job is pending again.
        job_id: set by engines whose jobs are claimed elsewhere (pilots).
    """

    attempt_uid: str
    verdict: Verdict
    retry: bool = False
    job_id: int | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the user that belongs to no job."""

    text: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Who supervised the attempt is gone, and the database does not know what became of it."""

    attempt_uid: str
    message: str


EngineEvent = Started | Progress | Ended | Lost | Notice


class Engine(Protocol):
    """Runs attempts. See the module for who decides what."""

    name: str

    claims_itself: bool
    """Jobs are taken from the database by the engine's own pilots; ``submit`` is never called and
    ``want`` says how many jobs are runnable."""

    def open(self, sweep_uid: str, wake_fd: int) -> None:
        """Start what the engine needs; called once, when the sweep is locked.

        ``sweep_uid`` groups the run directories.
        ``wake_fd`` becomes readable when the user asks to stop: ``poll`` returns then, if it can.
        """

    def capacity(self) -> Capacity:
        """What can be given; constant while the engine lives, and known before ``open``."""

    def check(self, job: JobRow) -> str | None:
        """Why the job can never run here, with the arithmetic; ``None`` if it can."""

    def reserve(self, job: JobRow) -> NewAttempt | None:
        """Take the room that the job needs, or ``None`` while there is none.

        Called for the job at the head of the queue, which waits: an engine keeps narrow jobs of
        others from starving a wide one. Each reservation is followed by ``submit`` or ``release``.
        """

    def release(self, attempt_uid: str) -> None:
        """Give a reservation back that was not used."""

    def submit(self, job: JobRow, attempt: AttemptRow, tries: int) -> None:
        """Start the attempt in its reservation. Its end is told by ``poll``, whatever happens.

        ``tries`` attempts of the job have ended in this run of the sweep: see ``EngineSetting.retries``.
        """

    def want(self, runnable: int) -> None:
        """Pilots only: so many jobs wait in the database; with 0 idle pilots may leave."""

    def poll(self, timeout_s: float) -> Sequence[EngineEvent]:
        """Events so far; waits for the first one up to ``timeout_s`` seconds, without turning."""

    def cancel(self, attempt_uid: str) -> None:
        """Stop one attempt, politely; it ends as ``cancelled``. Unknown ones are ignored."""

    def adopt(self, attempts: Sequence[AttemptRow]) -> Sequence[AttemptRow]:
        """Take up running attempts of an orch that is gone.

        Returns those that cannot be taken up; the database marks them ``lost``.
        """

    def close(self, *, kill: bool) -> None:
        """Let everything go; with ``kill`` every attempt is killed at once. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the user asked of this run of the sweep, beside the sweep file.

    Attributes:
        retry_failed: run failed, timed out and out-of-memory jobs again.
        fail_fast: start nothing more after the first failure.
        probe_every_s: between two link probes; ``None`` = none at all.
        retries: of an attempt whose supervisor died.
        stop_within_s: after a first signal; then what still runs is killed.
        continue_with: the command that continues this sweep, for messages.
    """

    retry_failed: bool = False
    fail_fast: bool = False
    probe_every_s: float | None = 300.0
    retries: int = 1
    stop_within_s: float = 60.0
    continue_with: str = "orch sweep"
