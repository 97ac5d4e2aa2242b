"""Follows the spool files of running ranks: only what supervision needs of them.

The records themselves are read by ``orchestrator.store``; here only "how far is it, how did it end".
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """A rank's own account of its failure."""

    status: str
    failure_kind: str | None
    message: str


def _text(record: dict[str, object], name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) else None


class SpoolTail:
    """What one rank has recorded so far."""

    def __init__(self, path: Path, rank: int) -> None:
        self.rank = rank
        self.started = False
        self.timed_from_at: str | None = None
        self.timed_to_at: str | None = None
        self.loop_s: float | None = None
        self.iterations = 0
        self.final = False
        self.error: ErrorRecord | None = None
        self.states_intact = True
        self.devices_ok = True
        self.device_uuid: str | None = None
        self._path = path
        self._offset = 0
        self._partial = b""

    def read(self) -> bool:
        """Take in the lines written since the last call; True if there were any."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self._lose()
        try:
            if os.fstat(descriptor).st_size < self._offset:
                return self._lose()
            data = self._partial
            while block := os.pread(descriptor, 1 << 18, self._offset):
                self._offset += len(block)
                data += block
        except OSError:
            return self._lose()
        finally:
            os.close(descriptor)
        if b"\n" not in data:
            self._partial = data
            return False
        *lines, self._partial = data.split(b"\n")
        for line in lines:
            self._take(line)
        return True

    def _lose(self) -> bool:
        """What was read is gone from the disk, so nobody can take it in: as if it had never been said."""
        was_final, self.final = self.final, False
        self._offset, self._partial, self.iterations = 0, b"", 0
        return was_final

    def _take(self, line: bytes) -> None:
        # Samples are the bulk of a spool and say nothing here: do not parse them.
        if line.startswith((b'{"kind": "sample"', b'{"kind":"sample"')):
            return
        try:
            record = json.loads(line)
            kind = record["kind"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        match kind:
            case "start":
                self.started = True
                self.device_uuid = _text(record, "device_uuid")
            case "timed_from":
                self.timed_from_at = self.timed_from_at or _text(record, "at")
                # More timed operations follow: the last timed_to counts.
                self.timed_to_at = None
            case "timed_to":
                self.timed_to_at = _text(record, "at")
                loop_s = record.get("loop_s")
                self.loop_s = loop_s if isinstance(loop_s, (int, float)) else None
            case "iteration":
                self.iterations += 1
                if record.get("states_intact") is False:
                    self.states_intact = False
                if record.get("devices_ok") is False:
                    self.devices_ok = False
            case "error":
                self.error = ErrorRecord(
                    str(record.get("status", "failed")),
                    _text(record, "failure_kind"),
                    str(record.get("message", "")),
                )
            case "final":
                self.final = True
