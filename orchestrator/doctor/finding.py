"""What a check says: how bad, on what evidence, and what mends it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    """How bad a finding is; in ascending order."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"
    """Some job will fail, hang or measure the wrong thing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about the host.

    Attributes:
        check: the check that found it, as in ``docs/doctor.md``.
        severity: how bad it is.
        message: one line, no trailing period.
        evidence: what was looked at, for a reader who doubts it; may be empty.
        mend: the command or the change that mends it; empty when nothing needs mending.
    """

    check: str
    severity: Severity
    message: str
    evidence: str = ""
    mend: str = ""


def ok(check: str, message: str, evidence: str = "") -> Finding:
    """Nothing to mend."""
    return Finding(check, Severity.OK, message, evidence)


def warn(check: str, message: str, evidence: str = "", mend: str = "") -> Finding:
    """Jobs run, but slower, less exactly or not all of them."""
    return Finding(check, Severity.WARN, message, evidence, mend)


def error(check: str, message: str, evidence: str = "", mend: str = "") -> Finding:
    """Jobs fail, hang or measure the wrong thing."""
    return Finding(check, Severity.ERROR, message, evidence, mend)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the checks look at; a test points them elsewhere."""

    db: str
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    shared_memory: Path = Path("/dev/shm")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


def size(size_bytes: float) -> str:
    """``size_bytes`` for a message, in 10^9 or 10^6 bytes."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"
