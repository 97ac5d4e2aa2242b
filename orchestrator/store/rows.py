"""What the store hands out and takes: frozen dataclasses, never a database row."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.spec.cell import Cell
from orchestrator.store.status import FailureKind, JobStatus

IMPORT_ENGINE = "import"
"""The engine of attempts that orch did not make: rows of the log of DeepSpeed's example."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A sweep as stored."""

    sweep_id: int
    uid: str
    name: str
    spec: str
    spec_path: str | None
    engine: str | None
    created_at: str
    updated_at: str
    cancel_requested: bool
    owner: str | None


@dataclass(frozen=True, slots=True)
class SweepChange:
    """What ``put_sweep`` did.

    Attributes:
        added: jobs that are new.
        kept: jobs that were there and are still asked for.
        vanished: keys of the cells that the sweep file no longer asks for; their rows stay.
        warnings: each one line, ready to print.
    """

    sweep_id: int
    name: str
    added: int
    kept: int
    vanished: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def addressed(label: str, sweep: str) -> str:
    """The arguments of ``orch show``, ``logs`` and ``repro`` for a job whose label other sweeps have, too."""
    return f"{label} --sweep {shlex.quote(sweep)}"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as stored, its cell rebuilt.

    Attributes:
        cell: the cell's key, ``v1:...``.
        cell_values: the cell itself.
        attempts: attempts begun so far.
        predicted_*: bytes by the formula, of the fullest rank; None = not predicted.
        sweep: its sweep's name, where the job was looked for by a name, or is to be run.
        also_in: other sweeps that have such a job; empty where nobody looked.
    """

    job_id: int
    uid: str
    sweep_id: int
    cell: str
    repeat: int
    position: int
    status: JobStatus
    reason: str | None
    in_spec: bool
    attempts: int
    cell_values: Cell
    parameters_total: int | None = None
    predicted_gpu_bytes: int | None = None
    predicted_freed_bytes: int | None = None
    predicted_copied_bytes: int | None = None
    predicted_pinned_bytes: int | None = None
    sweep: str = ""
    also_in: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """``CELL6/REPEAT``, which every command takes."""
        return f"{self.cell_values.short}/{self.repeat}"

    @property
    def address(self) -> str:
        """The label, with ``--sweep`` if other sweeps have such a job."""
        return addressed(self.label, self.sweep) if self.also_in else self.label


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """What is known of an attempt before it starts.

    Attributes:
        uid: unique over all databases; a second ``begin_attempt`` with it is harmless.
        owner: ``this_owner()`` of the process that supervises it.
        hosts: one name a node.
        device_uuids: one a rank.
    """

    uid: str
    engine: str
    launcher: str
    run_dir: str
    owner: str
    engine_job: str | None = None
    host: str | None = None
    hosts: Sequence[str] | None = None
    device_uuids: Sequence[str | None] | None = None
    port: int | None = None
    launch_mode: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt as stored; see ``schema.sql`` for the columns.

    Attributes:
        ranks: ranks that the job has, over all nodes.
        heartbeat_age_s: seconds since the last heartbeat, by the database's clock.
    """

    attempt_id: int
    uid: str
    job_id: int
    sweep_id: int
    number: int
    ranks: int
    status: JobStatus
    failure_kind: FailureKind | None
    message: str | None
    engine: str
    engine_job: str | None
    launcher: str
    launch_mode: str | None
    launch_note: str | None
    host: str | None
    hosts: tuple[str, ...] | None
    device_uuids: tuple[str | None, ...] | None
    port: int | None
    run_dir: str
    environment_id: int | None
    created_at: str
    started_at: str | None
    timed_from_at: str | None
    timed_to_at: str | None
    ended_at: str | None
    wait_s: float | None
    wall_s: float | None
    loop_s: float | None
    exit_status: int | None
    signal: int | None
    overlapped: bool | None
    overlap_note: str | None
    owner: str | None
    heartbeat_age_s: float | None


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """One attempt's end, for ``end_attempts``.

    Attributes:
        retry: an infrastructure failure with retries left: the job becomes pending again.
        columns: columns of ``attempt`` to set in the same transaction.
    """

    attempt_id: int
    status: JobStatus
    failure_kind: FailureKind | None = None
    message: str | None = None
    retry: bool = False
    columns: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankRow:
    """How far one rank of an attempt came; ``final_at`` None = it never delivered its final record."""

    attempt_id: int
    rank: int
    host: str | None
    pid: int | None
    device_uuid: str | None
    launch_mode: str | None
    started_at: str | None
    timed_from_at: str | None
    timed_to_at: str | None
    loop_s: float | None
    iterations: int | None
    final_at: str | None
    error_status: str | None
    failure_kind: str | None
    message: str | None
    traceback: str | None


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One measurement of a device's link to the host.

    Attributes:
        direction: ``down`` (device to host) or ``up``.
        bytes: bytes of one copy.
        seconds: of the median copy.
        devices_at_once: devices of the host that copied at the same time.
        probed_at: ISO-8601; empty = now.
    """

    host: str
    device_uuid: str
    pinned: bool
    direction: str
    bytes: int
    copies: int
    seconds: float
    gbps: float
    devices_at_once: int = 1
    device_name: str | None = None
    probed_at: str = ""
    sweep_id: int | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class IntakeCount:
    """What an intake read. Rows that were there already are counted too.

    Attributes:
        ranks_done: ranks whose final record was read.
        bad_lines: lines that could not be used; an event says which.
    """

    lines: int = 0
    iterations: int = 0
    samples: int = 0
    bad_lines: int = 0
    ranks_done: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class EventRow:
    """One change of state, or a note."""

    event_id: int
    at: str
    sweep_id: int | None
    job_id: int | None
    attempt_id: int | None
    kind: str
    from_status: str | None
    to_status: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that ``orch db check`` found."""

    what: str
    where: str
    fix: str = ""
