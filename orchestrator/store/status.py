"""How a job or an attempt can stand, and how it can fail. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobStatus(StrEnum):
    """Status of a job. An attempt has the same without ``pending`` and ``skipped``."""

    pending = "pending"
    running = "running"
    ok = "ok"
    failed = "failed"
    timeout = "timeout"
    oom_gpu = "oom_gpu"
    oom_host = "oom_host"
    cancelled = "cancelled"
    lost = "lost"
    skipped = "skipped"

    @property
    def is_final(self) -> bool:
        """Neither waiting nor under way."""
        return self not in (JobStatus.pending, JobStatus.running)


class FailureKind(StrEnum):
    """Why an attempt is ``failed``."""

    no_result = "no_result"
    killed = "killed"
    exception = "exception"
    states_changed = "states_changed"
    wrong_device = "wrong_device"
    unsupported = "unsupported"
    port = "port"
    jit_build = "jit_build"
    hang = "hang"
    fork_unsafe = "fork_unsafe"


AGAIN_BY_DEFAULT = frozenset({JobStatus.pending, JobStatus.cancelled, JobStatus.lost})
"""What continuing a sweep runs."""

AGAIN_IF_ASKED = frozenset({JobStatus.failed, JobStatus.timeout, JobStatus.oom_gpu, JobStatus.oom_host})
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
