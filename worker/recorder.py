"""A rank's spool: one JSON object a line, on disk before the next iteration begins.

A line with its newline is acknowledged: whatever happens to the rank, the next orch takes it in. Standard
library only; never called inside a timed section.
"""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path


def utc_now() -> str:
    """The time as ISO-8601 in UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def jsonable(value: object) -> object:
    """``value`` with NaN and infinities as the strings ``nan``, ``inf`` and ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value


class Recorder:
    """Appends records to a spool file; ``path`` None throws them away (a neighbour's)."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._descriptor: int | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)

    def write(self, kind: str, **columns: object) -> None:
        """Append one record; it has left this process when the call returns."""
        if self._descriptor is None:
            return
        document = {"kind": kind, **{name: jsonable(value) for name, value in columns.items()}}
        line = memoryview((json.dumps(document, allow_nan=False) + "\n").encode())
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            # "No space left on device" alone does not say which.
            error.filename = str(self.path)
            raise

    def close(self) -> None:
        """Close the file; harmless twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
