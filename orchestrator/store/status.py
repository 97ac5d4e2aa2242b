"""How a job or an attempt can stand, and how it can fail. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobStatus(StrEnum):
    """Status of a job. An attempt has the same without ``pending`` and ``skipped``."""

    PENDING = "pending"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM_GPU = "oom_gpu"
    OOM_HOST = "oom_host"
    CANCELLED = "cancelled"
    LOST = "lost"
    SKIPPED = "skipped"

    pending = PENDING
    running = RUNNING
    ok = OK
    failed = FAILED
    timeout = TIMEOUT
    oom_gpu = OOM_GPU
    oom_host = OOM_HOST
    cancelled = CANCELLED
    lost = LOST
    skipped = SKIPPED

    @property
    def is_final(self) -> bool:
        """Neither waiting nor under way."""
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)


class FailureKind(StrEnum):
    """Why an attempt is ``failed``."""

    NO_RESULT = "no_result"
    KILLED = "killed"
    EXCEPTION = "exception"
    STATES_CHANGED = "states_changed"
    WRONG_DEVICE = "wrong_device"
    UNSUPPORTED = "unsupported"
    PORT = "port"
    JIT_BUILD = "jit_build"
    HANG = "hang"
    FORK_UNSAFE = "fork_unsafe"

    no_result = NO_RESULT
    killed = KILLED
    exception = EXCEPTION
    states_changed = STATES_CHANGED
    wrong_device = WRONG_DEVICE
    unsupported = UNSUPPORTED
    port = PORT
    jit_build = JIT_BUILD
    hang = HANG
    fork_unsafe = FORK_UNSAFE


AGAIN_BY_DEFAULT = frozenset({JobStatus.PENDING, JobStatus.CANCELLED, JobStatus.LOST})
"""What continuing a sweep runs."""

AGAIN_IF_ASKED = frozenset({JobStatus.FAILED, JobStatus.TIMEOUT, JobStatus.OOM_GPU, JobStatus.OOM_HOST})
"""What ``--retry-failed`` adds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an attempt.

    Attributes:
        status: final. ``skipped`` means that the job cannot run here at all: the attempt is stored as
            failed (``unsupported``), the job as skipped with ``message`` as its reason.
        failure_kind: under ``failed`` only.
        message: one line, or None.
    """

    status: JobStatus
    failure_kind: FailureKind | None = None
    message: str | None = None
