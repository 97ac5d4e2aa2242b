"""Which kind of failure is an exception? The words that end up in ``attempt.failure_kind``."""

from __future__ import annotations

import traceback
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """What is written about a rank that could not finish.

    Attributes:
        status: failed, oom_gpu, oom_host or skipped.
        failure_kind: under failed; None otherwise.
        message: one line.
        traceback: the whole story, for the log and ``orch show``.
    """

    status: str
    failure_kind: str | None
    message: str
    traceback: str = ""


class RankError(Exception):
    """A failure that the worker itself has recognized; carries its kind."""

    def __init__(self, failure_kind: str | None, message: str, status: str = "failed") -> None:
        self.failure_kind = failure_kind
        self.status = status
        super().__init__(message)


_UNSUPPORTED = (
    "supported only for deepspeed fusedadam",
    "is not supported for offloaded parameters",
    "is not supported without an optimizer",
    "has no attribute 'offload_states'",
    "is not supported on your device",
    "untested zero optimizer",
    "cuda_home does not exist",
    "unable to jit load",
    "ninja is required",
    "no nvcc",
    "does not support offload",
    "not currently supported",
    "is not available for",
    "unrecognized key",
    "unrecognized config option",
)
_HOST_MEMORY = ("can't allocate memory", "enforce fail at alloc_cpu", "cudahostalloc")
_PORT = ("eaddrinuse", "address already in use")
_JIT = ("error building extension", "error compiling objects", "ninja: build stopped")


def one_line(text: str, limit: int = 500) -> str:
    """``text`` as one line of at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def classify(error: BaseException) -> Failure:
    """The failure that ``error`` is."""
    story = "".join(traceback.format_exception(error))
    name = type(error).__name__
    message = one_line(f"{name}: {error}" if str(error) else name)
    if isinstance(error, RankError):
        return Failure(error.status, error.failure_kind, one_line(str(error)), story)
    text = str(error).lower()
    if name == "OutOfMemoryError" or "cuda out of memory" in text or "cuda error: out of memory" in text:
        return Failure("oom_gpu", None, message, story)
    if (
        isinstance(error, MemoryError)
        or "can't allocate memory" in text
        or "enforce fail at alloc_cpu" in text
    ):
        return Failure("oom_host", None, message, story)
    for kind, words in (("port", _PORT), ("jit_build", _JIT), ("unsupported", _UNSUPPORTED)):
        if any(word in text for word in words):
            return Failure("failed", kind, message, story)
    return Failure("failed", "exception", message, story)
